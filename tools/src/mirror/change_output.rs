//! What is printed of commands that change what is wanted of topics: what was done, what would be, and what it costs.

use std::io::Write;

use serde_json::{Map, Value, json};

use super::Style;
use super::changes::{Asked, Change, Consent, Run};
use super::output::{PartitionJson, print_json};
use super::refusal::{self, Refused};
use super::standing::Standing;
use super::truncation::{Truncation, lines};
use crate::failure::Failure;

/// As of when it is known what a failed partition has and its source had not.
const WHEN_IT_FAILED: &str = "as of when it failed";
/// As of when it is known what clients wrote to a topic that is to be started.
const NOW: &str = "as of now";

/// What became of topics, or would become.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Changed<'a> {
    /// Those that are as they were asked to be.
    pub(super) topics: &'a [String],
    /// Those of them with which nothing was to be done.
    pub(super) undone: &'a [String],
    /// What stands in the way of them, or would be dropped.
    pub(super) truncations: &'a [Truncation],
    pub(super) refused: &'a [Refused],
    /// Where it was asked for, if what comes of it is to be looked for there.
    pub(super) look_at: Option<&'a str>,
}

/// What is wanted of topics from now on, or would be. What was refused is part of JSON alone.
pub(super) fn changed(
    out: &mut impl Write,
    asked: &Asked<'_>,
    changed: &Changed<'_>,
    style: Style,
) -> Result<(), Failure> {
    let Asked { change, mirror, run } = *asked;
    let Changed { topics, undone, .. } = *changed;
    if style == Style::Json {
        return print_json(out, &json_of(asked, changed)?);
    }
    let done: Vec<&str> = topics.iter().filter(|topic| !undone.contains(topic)).map(String::as_str).collect();
    let (count, listed) = (done.len(), done.join(", "));
    if !done.is_empty() || undone.is_empty() {
        let key = key(change);
        match (change, run) {
            (Change::Recover(Consent::Refused), Run::Dry) => writeln!(
                out,
                "Dry run: {count} topic(s) in mirror {mirror} would be tried again, without consent to drop anything: [{listed}]"
            )?,
            (_, Run::Dry) => {
                writeln!(out, "Dry run: {count} topic(s) in mirror {mirror} would be {key}: [{listed}]")?;
            }
            (Change::Stop, Run::Real) => {
                writeln!(out, "Stopped mirroring for topics [{listed}] in mirror {mirror}")?;
            }
            (Change::Pause, Run::Real) => {
                writeln!(out, "Paused mirroring for {count} topic(s) in mirror {mirror}: [{listed}]")?;
            }
            (Change::Resume, Run::Real) => {
                writeln!(out, "Resumed mirroring for {count} topic(s) in mirror {mirror}: [{listed}]")?;
            }
            (Change::Recover(_), Run::Real) => {
                writeln!(out, "Recovering {count} topic(s) in mirror {mirror}: [{listed}]")?;
            }
        }
    }
    if !undone.is_empty() {
        writeln!(out, "{}", nothing_to_do(change, mirror, undone))?;
    }
    if let (Change::Recover(consent), Style::Tarn, false) = (change, style, done.is_empty()) {
        recovering(out, (consent, run), mirror, changed)?;
    }
    Ok(())
}

fn key(change: Change) -> &'static str {
    match change {
        Change::Stop => "stopped",
        Change::Pause => "paused",
        Change::Resume => "resumed",
        Change::Recover(_) => "recovered",
    }
}

/// That topics were as they were asked to be.
fn nothing_to_do(change: Change, mirror: &str, topics: &[String]) -> String {
    let listed = topics.join(", ");
    match change {
        Change::Recover(_) => {
            format!(
                "Nothing to recover in mirror {mirror}, every partition of these is mirroring: [{listed}]"
            )
        }
        Change::Resume => {
            format!("Nothing to resume in mirror {mirror}, none of these is paused: [{listed}]")
        }
        Change::Stop | Change::Pause => {
            format!("Nothing to do in mirror {mirror}, these are {} already: [{listed}]", key(change))
        }
    }
}

/// What comes of trying topics again, as far as it is known.
fn recovering(
    out: &mut impl Write,
    (consent, run): (Consent, Run),
    mirror: &str,
    changed: &Changed<'_>,
) -> Result<(), Failure> {
    let Changed { truncations, look_at, .. } = *changed;
    let (said, listed) = match (consent, run, truncations.is_empty()) {
        (Consent::Refused, _, true) | (Consent::Given, Run::Real, _) => ("", Vec::new()),
        (Consent::Refused, _, false) => (
            "Each partition is compared with the source again. These failed for what it had not, and fail again unless it \
             has that now; --allow-truncation exports and drops it, and so does mirror.support.unclean.leader.election \
             where it is set:",
            lines(truncations, Truncation::stands_apart),
        ),
        (Consent::Given, Run::Dry, true) => (
            "What would be dropped is not known now: each partition is compared with the source first. Consent that was \
             given already holds until recover without it, or stop.",
            Vec::new(),
        ),
        (Consent::Given, Run::Dry, false) => (
            "Each partition is compared with the source first, and what it has by then is kept. As far as is known:",
            lines(truncations, |one| one.would_go(WHEN_IT_FAILED)),
        ),
    };
    if !said.is_empty() {
        writeln!(out, "{said}")?;
    }
    for line in listed {
        writeln!(out, "  {line}")?;
    }
    if let (Run::Real, Some(address)) = (run, look_at) {
        writeln!(
            out,
            "What comes of it: tarn mirror describe --bootstrap-server {address} --mirror {mirror}"
        )?;
    }
    Ok(())
}

/// What a stop would do, in JSON with how each partition stands now.
pub(super) fn would_stop(
    out: &mut impl Write,
    asked: &Asked<'_>,
    changed: &Changed<'_>,
    partitions: &[Standing],
) -> Result<(), Failure> {
    let mut answer = json_of(asked, changed)?;
    let partitions: Vec<PartitionJson<'_>> = partitions.iter().map(PartitionJson::from).collect();
    answer.insert("partitions".to_owned(), serde_json::to_value(partitions).map_err(unprintable)?);
    print_json(out, &answer)
}

fn json_of(asked: &Asked<'_>, changed: &Changed<'_>) -> Result<Map<String, Value>, Failure> {
    let Asked { change, mirror, run } = *asked;
    let Changed { topics, undone, truncations, refused, .. } = *changed;
    let mut answer = Map::new();
    answer.insert("mirror".to_owned(), json!(mirror));
    answer.insert(key(change).to_owned(), json!(topics));
    answer.insert("dryRun".to_owned(), json!(run == Run::Dry));
    if !undone.is_empty() {
        answer.insert("unchanged".to_owned(), json!(undone));
    }
    refusal::add_json(&mut answer, refused, truncations).map_err(unprintable)?;
    Ok(answer)
}

/// Topics that were started, or would be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Started<'a> {
    pub(super) mirror: &'a str,
    pub(super) topics: &'a [String],
    /// What would be dropped of them.
    pub(super) truncations: &'a [Truncation],
    pub(super) refused: &'a [Refused],
    /// What else is said of a topic: that what would be dropped of it is not known, say.
    pub(super) notes: &'a [(&'a str, &'a str)],
    pub(super) run: Run,
}

pub(super) fn started(out: &mut impl Write, started: &Started<'_>, style: Style) -> Result<(), Failure> {
    let Started { mirror, topics, truncations, refused, notes, run } = *started;
    if style == Style::Json {
        let mut answer = Map::new();
        answer.insert("mirror".to_owned(), json!(mirror));
        answer.insert("started".to_owned(), json!(topics));
        answer.insert("dryRun".to_owned(), json!(run == Run::Dry));
        if !notes.is_empty() {
            let note = |(topic, message): &(&str, &str)| json!({ "topic": topic, "message": message });
            answer.insert("notes".to_owned(), notes.iter().map(note).collect());
        }
        if run == Run::Dry {
            // What it has lost is found when the histories are compared.
            answer.insert("sourceAsked".to_owned(), json!(false));
        }
        refusal::add_json(&mut answer, refused, truncations).map_err(unprintable)?;
        return print_json(out, &answer);
    }
    if topics.is_empty() && !refused.is_empty() {
        // They were found, and are told of as refused.
        return Ok(());
    }
    let (count, listed) = (topics.len(), topics.join(", "));
    match (run, topics.is_empty()) {
        (Run::Real, true) => writeln!(
            out,
            "No matching topics found yet. Patterns saved to mirror {mirror} for auto-discovery."
        )?,
        (Run::Real, false) => writeln!(out, "Started {count} topic(s) in mirror {mirror}: [{listed}]")?,
        (Run::Dry, true) => writeln!(
            out,
            "Dry run: no matching topics found yet. Patterns would be saved to mirror {mirror} for auto-discovery."
        )?,
        (Run::Dry, false) => {
            writeln!(out, "Dry run: {count} topic(s) in mirror {mirror} would be started: [{listed}]")?;
        }
    }
    if run == Run::Dry && !topics.is_empty() {
        let known = if truncations.is_empty() { "" } else { " As far as is known here:" };
        writeln!(
            out,
            "The source is not asked what it has lost of what is here: that is found when both histories are compared, and \
             comes on top.{known}"
        )?;
        for line in lines(truncations, |one| one.would_go(NOW)) {
            writeln!(out, "  {line}")?;
        }
    }
    Ok(())
}

/// What `start` was given is kept, or would be, and nothing has begun, because of `why`.
pub(super) fn saved(
    out: &mut impl Write,
    mirror: &str,
    why: &str,
    run: Run,
    style: Style,
) -> Result<(), Failure> {
    let (dry, saved) = match run {
        Run::Real => ("Patterns", "saved"),
        Run::Dry => ("Dry run: patterns", "would be saved"),
    };
    match style {
        Style::Json => {
            let is_dry = run == Run::Dry;
            print_json(out, &json!({ "mirror": mirror, "started": [], "dryRun": is_dry, "note": why }))
        }
        _ => Ok(writeln!(
            out,
            "{dry} {saved} to mirror {mirror} for auto-discovery: {why}. Topics that match are mirrored once they are \
             found."
        )?),
    }
}

pub(super) fn deleted(out: &mut impl Write, mirror: &str, run: Run, style: Style) -> Result<(), Failure> {
    match (style, run) {
        (Style::Json, _) => {
            print_json(out, &json!({ "mirror": mirror, "deleted": true, "dryRun": run == Run::Dry }))
        }
        (_, Run::Dry) => Ok(writeln!(out, "Dry run: mirror {mirror} would be deleted")?),
        (_, Run::Real) => Ok(writeln!(out, "Deleted mirror {mirror}")?),
    }
}

pub(super) fn unprintable(error: serde_json::Error) -> Failure {
    Failure::Failed(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_mirror::reasons::Reason;

    #[test]
    fn a_dry_recovery_with_consent_says_what_would_be_dropped_and_where_it_would_be_kept() {
        let (topics, truncations) = (topics(&["orders"]), [diverged()]);
        let told = Changed { topics: &topics, truncations: &truncations, ..Changed::default() };
        let said = said(Change::Recover(Consent::Given), Run::Dry, &told);
        let expected = "Dry run: 1 topic(s) in mirror m would be recovered: [orders]\n\
            Each partition is compared with the source first, and what it has by then is kept. As far as is known:\n  \
            orders-0: offsets 100 to 349 (250 records), as of when it failed, would be exported under /e/orders-0 on node \
            1 and dropped\n";
        assert_eq!(said, expected);
        let json = json_said(Change::Recover(Consent::Given), Run::Dry, &told);
        assert_eq!((&json["recovered"], &json["dryRun"]), (&json!(["orders"]), &json!(true)));
        let truncation = &json["truncations"][0];
        assert_eq!(truncation["from"], 100);
        assert_eq!(truncation["exportDirectory"], "/e/orders-0");
        let nothing = Changed { truncations: &[], ..told };
        let said = self::said(Change::Recover(Consent::Given), Run::Dry, &nothing);
        assert!(said.contains("What would be dropped is not known now"), "{said}");
    }

    #[test]
    fn a_recovery_without_consent_says_what_fails_again() {
        let (topics, truncations) = (topics(&["orders"]), [diverged()]);
        let told = Changed {
            topics: &topics,
            truncations: &truncations,
            look_at: Some("h:1"),
            ..Changed::default()
        };
        let again = "fail again unless it has that now; --allow-truncation exports and drops it, and so does \
                     mirror.support.unclean.leader.election where it is set:\n  \
                     orders-0: offsets 100 to 349 (250 records), SOURCE_TRUNCATED\n";
        let dry = said(Change::Recover(Consent::Refused), Run::Dry, &told);
        assert!(
            dry.starts_with("Dry run: 1 topic(s) in mirror m would be tried again, without consent"),
            "{dry}"
        );
        assert!(dry.ends_with(again), "{dry}");
        let real = said(Change::Recover(Consent::Refused), Run::Real, &told);
        assert!(
            real.starts_with("Recovering 1 topic(s) in mirror m: [orders]\n") && real.contains(again),
            "{real}"
        );
        let look = "What comes of it: tarn mirror describe --bootstrap-server h:1 --mirror m\n";
        assert!(real.ends_with(look), "{real}");
    }

    #[test]
    fn where_nothing_was_to_be_done_nothing_is_said_to_be_done() {
        let (all, undone) = (topics(&["a", "b"]), topics(&["b"]));
        let told = Changed { topics: &all, undone: &undone, ..Changed::default() };
        let resumed = said(Change::Resume, Run::Real, &told);
        let expected = "Resumed mirroring for 1 topic(s) in mirror m: [a]\n\
                        Nothing to resume in mirror m, none of these is paused: [b]\n";
        assert_eq!(resumed, expected);
        let recovered =
            |run| said(Change::Recover(Consent::Given), run, &Changed { topics: &undone, ..told });
        let expected = "Nothing to recover in mirror m, every partition of these is mirroring: [b]\n";
        assert_eq!((recovered(Run::Real), recovered(Run::Dry)), (expected.to_owned(), expected.to_owned()));
        let json = json_said(Change::Resume, Run::Real, &told);
        assert_eq!((&json["resumed"], &json["unchanged"]), (&json!(["a", "b"]), &json!(["b"])));
    }

    #[test]
    fn a_dry_stop_in_json_says_how_each_partition_stands() {
        let topics = topics(&["orders"]);
        let standing = Standing {
            topic: "orders".to_owned(),
            state: "MIRRORING".to_owned(),
            source_offset: Some(9),
            destination_offset: Some(7),
            last_fetch_age_ms: Some(60_000),
            ..Standing::default()
        };
        let asked = Asked { change: Change::Stop, mirror: "m", run: Run::Dry };
        let mut out = Vec::new();
        let told = Changed { topics: &topics, ..Changed::default() };
        would_stop(&mut out, &asked, &told, &[standing]).unwrap();
        let json: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!((&json["stopped"], &json["dryRun"]), (&json!(["orders"]), &json!(true)));
        let partition = &json["partitions"][0];
        assert_eq!((&partition["state"], &partition["lagAtLeast"]), (&json!("MIRRORING"), &json!(2)));
        assert_eq!(partition["lastFetchAgeMs"], 60_000);
    }

    #[test]
    fn a_dry_start_starts_nothing_and_says_what_it_would_drop() {
        let topics = topics(&["orders"]);
        let of = |topics, truncations, style| {
            let told = Started { mirror: "m", topics, truncations, refused: &[], notes: &[], run: Run::Dry };
            let mut out = Vec::new();
            started(&mut out, &told, style).unwrap();
            String::from_utf8(out).unwrap()
        };
        let local = [Truncation { reason: Some(Reason::LocalRecords), ..diverged() }];
        let said = of(&topics, &local, Style::Tarn);
        assert!(said.starts_with("Dry run: 1 topic(s) in mirror m would be started: [orders]\n"), "{said}");
        assert!(
            said.contains("orders-0: offsets 100 to 349 (250 records), as of now, would be exported under"),
            "{said}"
        );
        let json: Value = serde_json::from_str(&of(&topics, &local, Style::Json)).unwrap();
        assert_eq!((&json["started"], &json["dryRun"]), (&json!(["orders"]), &json!(true)));
        assert_eq!(json["truncations"][0]["reasonCode"], "LOCAL_RECORDS");
        assert_eq!(json["sourceAsked"], false);
        assert!(
            of(&topics, &[], Style::Tarn).contains("not asked what it has lost"),
            "nor where nothing is known"
        );
        assert!(of(&[], &[], Style::Tarn).contains("Patterns would be saved to mirror m"));
        let mut out = Vec::new();
        saved(&mut out, "m", "nobody answers", Run::Dry, Style::Tarn).unwrap();
        let said = String::from_utf8(out).unwrap();
        assert!(
            said.starts_with("Dry run: patterns would be saved to mirror m for auto-discovery: nobody"),
            "{said}"
        );
    }

    fn said(change: Change, run: Run, told: &Changed<'_>) -> String {
        let mut out = Vec::new();
        changed(&mut out, &Asked { change, mirror: "m", run }, told, Style::Tarn).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn json_said(change: Change, run: Run, told: &Changed<'_>) -> Value {
        let mut out = Vec::new();
        changed(&mut out, &Asked { change, mirror: "m", run }, told, Style::Json).unwrap();
        serde_json::from_slice(&out).unwrap()
    }

    fn topics(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn diverged() -> Truncation {
        Truncation {
            topic: "orders".to_owned(),
            range: Some((100, 350)),
            records: Some(250),
            reason: Some(Reason::SourceTruncated),
            export: Some((1, "/e/orders-0".to_owned())),
            ..Truncation::default()
        }
    }
}
