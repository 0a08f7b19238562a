//! How far a mirror is, in one line, and what it has exported, one line each.

use super::standing::Standing;
use crate::progress::counted;

/// How many partitions one line names.
const NAMES_MAX: usize = 5;

/// How many exports are told at the end.
const EXPORTS_MAX: usize = 10;

/// What a person waits for: how many partitions of these topics are copied, what is left, the first that is not well,
/// and of which something was exported.
pub(super) fn summary(mirror: &str, partitions: &[Standing]) -> String {
    let mirroring = partitions.iter().filter(|partition| partition.is_mirroring()).count();
    let known: i64 = partitions.iter().filter_map(Standing::lag).sum();
    let unknown = partitions.iter().filter(|partition| partition.lag().is_none()).count();
    let is_old = |partition: &Standing| partition.lag().is_some() && !partition.is_lag_current();
    let at_least = if partitions.iter().any(is_old) { "at least " } else { "" };
    let lag = match (partitions.len() - unknown, unknown) {
        (0, _) => "lag not known yet".to_owned(),
        (_, 0) => format!("lag {at_least}{}", records(known)),
        _ => format!("lag {at_least}{}, not known yet of {}", records(known), counted(unknown, "partition")),
    };
    let mut text = format!("{mirror}: {mirroring} of {} partitions mirroring, {lag}", partitions.len());
    let is_unwell = |partition: &&Standing| {
        partition.reason_code.is_some() && partition.export().is_none() && !partition.is_of_before()
    };
    let mut unwell = partitions.iter().filter(is_unwell);
    if let Some(first) = unwell.next() {
        let why = first.error_message.as_deref().or(first.reason_code.as_deref()).unwrap_or_default();
        text.push_str(&format!("; {}: {why}", first.name()));
        match unwell.count() {
            0 => {}
            more => text.push_str(&format!(" (and {more} more)")),
        }
    }
    let exported: Vec<String> =
        partitions.iter().filter(|one| one.export().is_some()).map(Standing::name).collect();
    if !exported.is_empty() {
        let named = exported.iter().take(NAMES_MAX).cloned().collect::<Vec<_>>().join(", ");
        let more = match exported.len().saturating_sub(NAMES_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        text.push_str(&format!("; exported: {named}{more}"));
    }
    text
}

/// What was exported, one line for each partition, and where the rest is told.
pub(super) fn exports(address: &str, mirror: &str, partitions: &[Standing]) -> Vec<String> {
    let all: Vec<String> = partitions
        .iter()
        .filter_map(|partition| Some(format!("{}: {}", partition.name(), partition.export()?)))
        .collect();
    let left = all.len().saturating_sub(EXPORTS_MAX);
    let mut lines: Vec<String> = all.into_iter().take(EXPORTS_MAX).collect();
    if left > 0 {
        lines.push(format!(
            "and {left} more: tarn mirror report --bootstrap-server {address} --mirror {mirror}"
        ));
    }
    lines
}

fn records(count: i64) -> String {
    counted(usize::try_from(count).unwrap_or(0), "record")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_tells_zero_lag_from_unknown_lag() {
        let unknown = Standing { state: "LOG_ALIGNMENT".to_owned(), ..Standing::default() };
        let said = |partitions: &[Standing]| summary("m", partitions);
        assert_eq!(said(std::slice::from_ref(&unknown)), "m: 0 of 1 partitions mirroring, lag not known yet");
        assert_eq!(said(&[known(1500)]), "m: 1 of 1 partitions mirroring, lag 1,500 records");
        let both = "m: 1 of 2 partitions mirroring, lag 0 records, not known yet of 1 partition";
        assert_eq!(said(&[known(0), unknown]), both);
        let old = Standing { last_fetch_age_ms: Some(60_000), ..known(0) };
        assert_eq!(said(&[known(1), old]), "m: 2 of 2 partitions mirroring, lag at least 1 record");
    }

    #[test]
    fn every_export_is_named_and_hides_nothing_that_is_wrong() {
        let parted: Vec<Standing> = (0..7).map(exported).collect();
        let said = summary("m", &parted);
        assert!(said.ends_with("; exported: t-0, t-1, t-2, t-3, t-4 and 2 more"), "{said}");
        let failed = |partition| Standing {
            topic: "u".to_owned(),
            partition,
            state: "FAILED".to_owned(),
            reason_code: Some("SOURCE_ERROR".to_owned()),
            ..Standing::default()
        };
        let said = summary("m", &[exported(0), failed(4), failed(5)]);
        assert!(said.ends_with("; u-4: SOURCE_ERROR (and 1 more); exported: t-0"), "{said}");
        let before = Standing { failed_version: Some(1), desired_version: Some(2), ..failed(4) };
        assert_eq!(summary("m", &[before]), "m: 0 of 1 partitions mirroring, lag not known yet");
    }

    #[test]
    fn exports_are_a_line_each_up_to_some() {
        let told = |count| exports("h:1", "m", &(0..count).map(exported).collect::<Vec<_>>());
        assert_eq!(told(0), Vec::<String>::new());
        assert_eq!(told(2)[1], "t-1: offsets 5 to 9 (5 records) are exported to /e/t-1/5-10.7 on node 1");
        assert_eq!((told(10).len(), told(12).len()), (10, 11));
        assert_eq!(told(12)[10], "and 2 more: tarn mirror report --bootstrap-server h:1 --mirror m");
    }

    fn known(lag: i64) -> Standing {
        Standing {
            state: "MIRRORING".to_owned(),
            source_offset: Some(lag),
            destination_offset: Some(0),
            last_fetch_age_ms: Some(20),
            ..Standing::default()
        }
    }

    fn exported(partition: i32) -> Standing {
        let said = format!("offsets 5 to 9 (5 records) are exported to /e/t-{partition}/5-10.7 on node 1");
        Standing {
            topic: "t".to_owned(),
            partition,
            reason_code: Some("LOCAL_RECORDS".to_owned()),
            error_message: Some(said),
            ..known(0)
        }
    }
}
