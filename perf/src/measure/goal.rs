//! What a run is meant to reach, held against the median of its rounds.

use std::fmt::{self, Write};

use serde_json::{Map, Value, json};

use super::spread::Spread;
use super::target::Target;

/// A quantity that is meant to reach something.
pub(crate) struct Goal<T> {
    /// Its name in JSON.
    pub(crate) key: &'static str,
    /// Its name in a table.
    pub(crate) title: &'static str,
    /// Reads it.
    pub(crate) of: fn(&T) -> f64,
    /// What it is to reach.
    pub(crate) target: Target,
}

impl<T> Goal<T> {
    fn spread(&self, rounds: &[T]) -> Option<Spread> {
        Spread::of(rounds.iter().map(self.of))
    }
}

/// Writes a table of goals.
pub(crate) fn write_goals<T>(text: &mut String, goals: &[Goal<T>], rounds: &[T]) -> fmt::Result {
    writeln!(text, "\n| goal | | to reach | |\n|---|---|---|---|")?;
    for goal in goals {
        if let Some(spread) = goal.spread(rounds) {
            let (word, target) = (goal.target.word(spread.median), goal.target.text());
            writeln!(text, "| {} | {} | {target} | {word} |", goal.title, spread.text(2))?;
        }
    }
    Ok(())
}

/// The same as JSON.
pub(crate) fn goals_json<T>(goals: &[Goal<T>], rounds: &[T]) -> Map<String, Value> {
    let value = |goal: &Goal<T>| {
        let spread = goal.spread(rounds)?;
        let mut value = spread.json();
        value["target"] = json!(goal.target.text());
        value["reached"] = json!(goal.target.is_met(spread.median));
        Some((goal.key.to_owned(), value))
    };
    goals.iter().filter_map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_held_against_the_median() {
        let goals = [Goal { key: "k", title: "seconds", of: |s: &f64| *s, target: Target::Below(10.0) }];
        for (rounds, reached, word) in
            [([9.0, 12.0, 11.0], false, "missed"), ([9.0, 12.0, 8.0], true, "reached")]
        {
            assert_eq!(goals_json(&goals, &rounds)["k"]["reached"].as_bool(), Some(reached));
            let mut text = String::new();
            write_goals(&mut text, &goals, &rounds).unwrap();
            assert!(text.contains(&format!("| < 10 | {word} |")), "{text}");
        }
    }
}
