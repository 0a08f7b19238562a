//! `tarn mirror stop`, and `failover`, which is the same for everything a mirror has: ask for it, then wait until
//! clients can write, and say what may be lost.
//!
//! Nothing here asks the source: it may be gone. The wait ends with the last partition of the topics, each of
//! which is writable as soon as it is STOPPED, whatever the others do.

use std::collections::BTreeMap;
use std::io::{Write, stdout};
use std::time::{Duration, Instant};

use tarn_mirror::state::MirrorState;
use tarn_runtime::sleep;

use super::change_output::{self, Changed};
use super::changes::{Answer, Asked, Change, Run, ask};
use super::refusal::{self, of_topics};
use super::report;
use super::report_output::{self, Stopped};
use super::standing::{self, Standing};
use super::summary::summary;
use super::{FailoverArguments, StopArguments, Style, patterns};
use crate::admin::{Cluster, PATIENCE};
use crate::failure::Failure;
use crate::progress::{Line, counted, while_waiting};

/// The pause between two looks, at first and at most: a look at many partitions costs something.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));

/// Where there is no terminal, a line is printed so often.
const SAY_AGAIN: Duration = Duration::from_secs(1);

/// Everything that a mirror has.
const EVERYTHING: &str = ".*";

/// Stops topics, and waits until they are writable where that is asked.
pub(super) async fn stop(arguments: StopArguments, style: Style) -> Result<(), Failure> {
    let began = Instant::now();
    let StopArguments { named, topics, how } = arguments;
    let (topics, address) = (patterns::checked(&topics)?, named.address());
    let (mirror, run) = (named.mirror, Run::of(how.dry_run));
    let cluster = Cluster::connect(&named.connect).await?;
    let deadline = how.timeout.map(|seconds| began + Duration::from_secs(seconds));
    let waits = run == Run::Real && !how.no_wait;
    let asked = async {
        let mut said = String::new();
        loop {
            match ask(&cluster, Change::Stop, &mirror, &topics, run).await {
                // A controller that cannot write has taken nothing down, and on that day nobody asks again for us.
                Err(Failure::NotNow(why)) if waits && !is_over(deadline) => {
                    say_once(&mut said, &mirror, why);
                }
                asked => return asked,
            }
            sleep(SAY_AGAIN).await;
        }
    };
    let Answer { topics, refused, .. } = while_waiting("asking the controller", asked).await?;
    let asked = Asked { change: Change::Stop, mirror: &mirror, run };
    let told = Changed { topics: &topics, refused: &refused, ..Changed::default() };
    if topics.is_empty() {
        if style == Style::Json && !refused.is_empty() {
            change_output::changed(&mut stdout().lock(), &asked, &told, style)?;
        }
        return of_topics(&refused);
    }
    if run == Run::Dry {
        let partitions = standing::read(&cluster, Some(&mirror), Some(&topics)).await?.partitions;
        let (left, done) = left_and_done(topics.clone(), &partitions);
        say_dry(&asked, &Changed { topics: &left, undone: &done, ..told }, &partitions, style)?;
        return of_topics(&refused);
    }
    if how.no_wait {
        change_output::changed(&mut stdout().lock(), &asked, &told, style)?;
        return of_topics(&refused);
    }
    let waited = wait_until_writable(&cluster, &mirror, &topics, deadline).await;
    if waited.is_err() {
        return refusal::after(waited, of_topics(&refused));
    }
    let reports = report::read(&cluster, &mirror, Some(&topics)).await;
    if let Err(failure) = &reports {
        eprintln!("tarn: everything is writable, and the reports cannot be read now: {failure}");
    }
    let stopped =
        Stopped { mirror: &mirror, topics: &topics, refused: &refused, address, took: began.elapsed() };
    report_output::stopped(&mut stdout().lock(), &stopped, reports.ok().as_deref(), style)?;
    of_topics(&refused)
}

/// Says what would be stopped, how that stands now, and what is stopped already.
fn say_dry(
    asked: &Asked<'_>,
    told: &Changed<'_>,
    partitions: &[Standing],
    style: Style,
) -> Result<(), Failure> {
    let mut out = stdout().lock();
    if style == Style::Json {
        return change_output::would_stop(&mut out, asked, told, partitions);
    }
    let (left, done) = (told.topics, told.undone);
    change_output::changed(&mut out, asked, &Changed { undone: &[], ..*told }, style)?;
    if style == Style::Tarn && !done.is_empty() {
        writeln!(out, "Stopped already: [{}]", done.join(", "))?;
    }
    if style == Style::Tarn && !left.is_empty() {
        eprintln!("{}", summary(asked.mirror, partitions));
    }
    Ok(())
}

/// Stops whatever a mirror has, or a part of it.
pub(super) async fn failover(arguments: FailoverArguments, style: Style) -> Result<(), Failure> {
    let FailoverArguments { named, mut topics, how } = arguments;
    if topics.is_empty() {
        topics.push(EVERYTHING.to_owned());
    }
    stop(StopArguments { named, topics, how }, style).await
}

/// Says why something is tried again, and no more until the reason is another.
fn say_once(said: &mut String, mirror: &str, why: String) {
    if *said != why {
        eprintln!("{mirror}: {why}; it is tried again");
        *said = why;
    }
}

fn is_over(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

async fn wait_until_writable(
    cluster: &Cluster,
    mirror: &str,
    topics: &[String],
    deadline: Option<Instant>,
) -> Result<(), Failure> {
    let line = Line::spinner(format!("{mirror}: stopping"));
    let (mut said, mut seen, mut answered) = (Instant::now(), Instant::now(), Instant::now());
    let (mut pause, mut trouble) = (LOOK_AGAIN.0, String::new());
    loop {
        let partitions = match standing::read(cluster, Some(mirror), Some(topics)).await {
            Ok(read) => read.partitions,
            // It may be restarted, or be busy: the stop was taken down, and goes on through that.
            Err(Failure::Failed(why) | Failure::NotNow(why)) => {
                if deadline.map_or(answered.elapsed() >= PATIENCE, |_| is_over(deadline)) {
                    let why = format!("{why}; the stop was taken down, and goes on where {mirror} is");
                    return Err(Failure::Failed(why));
                }
                say_once(&mut trouble, mirror, why);
                sleep(SAY_AGAIN).await;
                continue;
            }
            Err(other) => return Err(other),
        };
        answered = Instant::now();
        let waiting: Vec<&Standing> = partitions.iter().filter(|partition| !is_writable(partition)).collect();
        if waiting.is_empty() && !partitions.is_empty() {
            return Ok(());
        }
        if !partitions.is_empty() {
            seen = Instant::now();
        } else if seen.elapsed() > PATIENCE {
            return Err(Failure::Failed(format!("mirror {mirror} shows none of these topics any more")));
        }
        let progress = progress(mirror, &partitions, &waiting);
        if is_over(deadline) {
            return Err(Failure::Failed(format!("not stopped in time, and goes on: {progress}")));
        }
        if line.is_hidden() && said.elapsed() >= SAY_AGAIN {
            eprintln!("{progress}");
            said = Instant::now();
        }
        line.say(progress);
        sleep(pause).await;
        pause = (pause * 2).min(LOOK_AGAIN.1);
    }
}

/// Those of the topics that are still to be stopped, and those of which every partition is writable.
fn left_and_done(topics: Vec<String>, partitions: &[Standing]) -> (Vec<String>, Vec<String>) {
    let is_left = |topic: &String| {
        let mut of_topic = partitions.iter().filter(|partition| partition.topic == *topic).peekable();
        of_topic.peek().is_none() || !of_topic.all(is_writable)
    };
    topics.into_iter().partition(is_left)
}

/// Clients can write once the partition is STOPPED; where all of its topic were, the metadata say so, whether or not the
/// coordinator of the partition answers now.
fn is_writable(partition: &Standing) -> bool {
    partition.state == MirrorState::Stopped.name() || partition.is_of_stopped_topic()
}

/// How many partitions are writable, which topics are not, and what the first of them waits for.
fn progress(mirror: &str, partitions: &[Standing], waiting: &[&Standing]) -> String {
    let (all, left) = (partitions.len(), waiting.len());
    let mut by_topic: BTreeMap<&str, usize> = BTreeMap::new();
    waiting.iter().for_each(|partition| *by_topic.entry(&partition.topic).or_default() += 1);
    let mut text = format!(
        "{mirror}: {} of {all} partitions writable, {} left",
        all - left,
        counted(by_topic.len(), "topic")
    );
    if let Some(held) = waiting.iter().find(|partition| partition.reason_code.is_some()) {
        let why = held.error_message.as_deref().or(held.reason_code.as_deref()).unwrap_or_default();
        text.push_str(&format!("; {}-{} waits: {why}", held.topic, held.partition));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_progress_says_what_is_waited_for() {
        let partition = |topic: &str, partition, state: &str, why: Option<&str>| Standing {
            topic: topic.to_owned(),
            partition,
            state: state.to_owned(),
            reason_code: why.map(|_| "DESTINATION_STORAGE".to_owned()),
            error_message: why.map(str::to_owned),
            ..Standing::default()
        };
        let partitions = [
            partition("a", 0, "STOPPED", None),
            partition("a", 1, "STOPPING", None),
            partition("b", 0, "STOPPING", Some("the disk is full")),
        ];
        let topics = ["a", "b", "c"].map(str::to_owned).to_vec();
        assert_eq!(left_and_done(topics.clone(), &partitions), (topics, Vec::new()), "one partition is left");
        let (left, done) = left_and_done(vec!["a".to_owned()], &partitions[..1]);
        assert_eq!((left, done), (Vec::new(), vec!["a".to_owned()]));
        let waiting: Vec<&Standing> = partitions.iter().filter(|one| !is_writable(one)).collect();
        let said = "m: 1 of 3 partitions writable, 2 topics left; b-0 waits: the disk is full";
        assert_eq!(progress("m", &partitions, &waiting), said);
    }
}
