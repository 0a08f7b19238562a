//! `tarn mirror`, and the same in the words of KIP-1279's `kafka-cluster-mirrors.sh`.

mod change_output;
mod changes;
mod config;
mod kafka_flags;
mod output;
mod patterns;
mod refusal;
mod report;
mod report_output;
mod standing;
mod stopping;
mod summary;
mod truncation;
mod verbs;
mod waiting;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::admin::{on_core, seconds};
use crate::connect::ConnectArguments;
use crate::failure::Failure;

pub(crate) use kafka_flags::{KAFKA_NAME, KafkaArguments, run_as_kafka_does};

/// What to do with mirrors.
#[derive(Debug, Args)]
#[command(
    after_help = "A mirror is the link to one source cluster. Its topics are copied byte for byte, with \
                        their offsets, leader epochs and ids, and are read-only here while they are mirrored.\n\n\
                        Exit codes: 0 done, 1 failed, 2 used wrongly, 3 a precondition is not met, which asking \
                        again does not change: there is no such mirror or topic, or a mirror of that name is another; \
                        a topic is excluded, has records (LOCAL_RECORDS) or an id (TOPIC_ID_CONFLICT) of its own \
                        here, or would come back to where it began (MIRROR_LOOP); the source is not the cluster \
                        that it was (SOURCE_CLUSTER_CHANGED); the mirror still has topics (CLUSTER_MIRROR_NOT_EMPTY), \
                        or a topic belongs to another one; a topic is not in the state that the command is for \
                        (MIRROR_TOPIC_NOT_STOPPED, MIRROR_TOPIC_NOT_PAUSED, MIRROR_TOPIC_BEING_STOPPED, \
                        INVALID_CLUSTER_MIRROR_STATE); the server does not serve mirroring."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Create a mirror of a source cluster
    Create(CreateArguments),
    /// Begin to mirror topics
    Start(StartArguments),
    /// List the mirrors
    List(ListArguments),
    /// Show what each mirrored partition does, and how far behind it is
    Describe(DescribeArguments),
    /// Stop mirroring topics, and wait until clients can write to them; the source may be gone
    Stop(StopArguments),
    /// Stop everything that a mirror has: the source is lost
    Failover(FailoverArguments),
    /// Hold mirroring; topics stay read-only
    Pause(ChangeArguments),
    /// Go on after a pause
    Resume(ResumeArguments),
    /// Try topics again that have failed
    Recover(RecoverArguments),
    /// Show what stops knew of the source, what was copied and what was aborted
    Report(ReportArguments),
    /// Delete a mirror whose topics are all stopped; the topics stay
    Delete(DeleteArguments),
    #[command(flatten)]
    Later(LaterVerb),
}

/// Verbs of the proposal that are not served yet.
#[derive(Clone, Debug, Subcommand)]
enum LaterVerb {
    /// Wait for lag 0, then stop (not served yet)
    Promote(Ignored),
    /// Mirror back to the old source (not served yet)
    Failback(Ignored),
    /// Show what a sync would change (not served yet)
    Diff(Ignored),
    /// Check a mirror, before it is made or later (not served yet)
    Doctor(Ignored),
}

/// Whatever stands behind a verb that is not served yet.
#[derive(Clone, Debug, Args)]
struct Ignored {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

/// How a command prints what it found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    /// As the proposal does, with what Tarn knows beside it.
    Tarn,
    /// As the proposal does.
    Proposal,
    /// As JSON.
    Json,
}

#[derive(Clone, Debug, Args)]
struct Named {
    #[command(flatten)]
    connect: ConnectArguments,
    /// The mirror's name
    #[arg(long, value_name = "NAME")]
    mirror: String,
}

impl Named {
    /// Where the cluster was asked for.
    fn address(&self) -> String {
        self.connect.bootstrap_server[0].to_string()
    }
}

#[derive(Clone, Debug, Args)]
struct CreateArguments {
    #[command(flatten)]
    named: Named,
    /// A properties file about the source: bootstrap.servers, and how to copy
    #[arg(long, value_name = "FILE")]
    mirror_config: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, Args)]
struct StartArguments {
    #[command(flatten)]
    named: Named,
    /// Names or regular expressions of topics at the source; topics that match later are mirrored too
    #[arg(long, value_name = "CSV", value_delimiter = ',', required = true)]
    topics: Vec<String>,
    /// Names or regular expressions of topics to leave out
    #[arg(long, value_name = "CSV", value_delimiter = ',')]
    exclude: Vec<String>,
    /// Consent to dropping records that only this cluster has, once they are exported
    #[arg(long)]
    allow_truncation: bool,
    /// Say what would be started and what it would drop, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Return only when these topics are copied; those that are refused hold up no others, and are told at the end
    #[arg(long, conflicts_with = "dry_run")]
    wait: bool,
    /// Give up waiting after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds(), requires = "wait")]
    timeout: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Whether a command ends before what it begins.
#[derive(Clone, Debug, Default, Args)]
struct HowToWait {
    /// Return only when every partition of these topics is mirroring, or one has failed for good
    #[arg(long, conflicts_with = "dry_run")]
    wait: bool,
    /// Give up waiting after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds(), requires = "wait")]
    timeout: Option<u64>,
}

#[derive(Clone, Debug, Args)]
struct ListArguments {
    #[command(flatten)]
    connect: ConnectArguments,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, Args)]
struct DescribeArguments {
    #[command(flatten)]
    connect: ConnectArguments,
    /// Only this mirror; all of them where this is left out
    #[arg(long, value_name = "NAME")]
    mirror: Option<String>,
    /// Only partitions that have failed, with why and which retry it is
    #[arg(long)]
    failed: bool,
    /// Only what follows the source beside the records
    #[arg(long, conflicts_with = "failed")]
    tasks: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, Args)]
struct ChangeArguments {
    #[command(flatten)]
    named: Named,
    /// Names or regular expressions of topics of the mirror
    #[arg(long, value_name = "CSV", value_delimiter = ',', required = true)]
    topics: Vec<String>,
    /// Say what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, Args)]
struct ResumeArguments {
    #[command(flatten)]
    change: ChangeArguments,
    #[command(flatten)]
    wait: HowToWait,
}

#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Histories are compared with the source's once more. A partition that has failed for what the \
                        source has not (SOURCE_TRUNCATED, LOCAL_RECORDS) fails again unless the source has it now, or \
                        --allow-truncation is given. The command ends once this is begun: --wait, or describe, tells \
                        what comes of it. A topic of which every partition mirrors is left alone."
)]
struct RecoverArguments {
    #[command(flatten)]
    change: ChangeArguments,
    /// Consent to dropping records that only this cluster has, once they are exported; --dry-run says which
    #[arg(long)]
    allow_truncation: bool,
    #[command(flatten)]
    wait: HowToWait,
}

#[derive(Clone, Debug, Args)]
struct StopArguments {
    #[command(flatten)]
    named: Named,
    /// Names or regular expressions of topics of the mirror; '.*' for all of them
    #[arg(long, value_name = "CSV", value_delimiter = ',', required = true)]
    topics: Vec<String>,
    #[command(flatten)]
    how: HowToStop,
}

#[derive(Clone, Debug, Args)]
struct FailoverArguments {
    #[command(flatten)]
    named: Named,
    /// Names or regular expressions of topics; everything the mirror has where this is left out
    #[arg(long, value_name = "CSV", value_delimiter = ',')]
    topics: Vec<String>,
    #[command(flatten)]
    how: HowToStop,
}

#[derive(Clone, Debug, Default, Args)]
struct HowToStop {
    /// Return as soon as the controller has taken it down
    #[arg(long)]
    no_wait: bool,
    /// Give up waiting after so many seconds, where this is given; the stop goes on
    #[arg(long, value_name = "SECONDS", value_parser = seconds(), conflicts_with = "no_wait")]
    timeout: Option<u64>,
    /// Say what would be stopped, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, Args)]
struct ReportArguments {
    #[command(flatten)]
    named: Named,
    /// Only topics of these names or regular expressions
    #[arg(long, value_name = "CSV", value_delimiter = ',')]
    topics: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, Args)]
struct DeleteArguments {
    #[command(flatten)]
    named: Named,
    /// Say whether it could be deleted, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Does what was asked.
pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    let style = |json: bool| if json { Style::Json } else { Style::Tarn };
    match arguments.verb {
        Verb::Create(arguments) => on_core(move || async move {
            let style = style(arguments.json);
            verbs::create(arguments, style).await
        }),
        Verb::Start(arguments) => on_core(move || async move {
            let style = style(arguments.json);
            verbs::start(arguments, style).await
        }),
        Verb::List(arguments) => on_core(move || async move {
            let style = style(arguments.json);
            verbs::list(arguments, style).await
        }),
        Verb::Describe(arguments) => on_core(move || async move {
            let style = style(arguments.json);
            verbs::describe(arguments, style).await
        }),
        Verb::Stop(arguments) => on_core(move || async move {
            let style = style(arguments.how.json);
            stopping::stop(arguments, style).await
        }),
        Verb::Failover(arguments) => on_core(move || async move {
            let style = style(arguments.how.json);
            stopping::failover(arguments, style).await
        }),
        Verb::Pause(arguments) => on_core(move || async move {
            let style = style(arguments.json);
            changes::pause(arguments, style).await
        }),
        Verb::Resume(arguments) => on_core(move || async move {
            let style = style(arguments.change.json);
            changes::resume(arguments, style).await
        }),
        Verb::Recover(arguments) => on_core(move || async move {
            let style = style(arguments.change.json);
            changes::recover(arguments, style).await
        }),
        Verb::Report(arguments) => on_core(move || async move {
            let style = style(arguments.json);
            report::report(arguments, style).await
        }),
        Verb::Delete(arguments) => on_core(move || async move {
            let style = style(arguments.json);
            changes::delete(arguments, style).await
        }),
        Verb::Later(verb) => Err(later(verb.name())),
    }
}

impl LaterVerb {
    fn name(&self) -> &'static str {
        match self {
            LaterVerb::Promote(_) => "promote",
            LaterVerb::Failback(_) => "failback",
            LaterVerb::Diff(_) => "diff",
            LaterVerb::Doctor(_) => "doctor",
        }
    }
}

/// A verb of the proposal that Tarn does not serve yet.
fn later(verb: &str) -> Failure {
    Failure::Usage(format!(
        "{verb} is not served yet: this version of Tarn makes and follows mirrors and stops them, and later ones bring \
         the other verbs"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_that_come_later_say_so_and_are_wrong_usage() {
        let failure = later("promote");
        assert_eq!(failure.exit_code(), 2);
        assert!(failure.to_string().starts_with("promote is not served yet"));
    }
}
