//! Signs of life for what takes longer than a second. Drawn on standard error, and only where that is a
//! terminal.

use std::future::{Future, pending};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tarn_runtime::sleep;

/// What takes no longer than this shows nothing.
const PATIENCE: Duration = Duration::from_secs(1);

const REDRAW: Duration = Duration::from_millis(120);

/// A line that is redrawn in place and gone when this is dropped.
#[derive(Debug)]
pub(crate) struct Line {
    bar: ProgressBar,
}

impl Line {
    /// A spinner with a message.
    pub(crate) fn spinner(message: impl Into<String>) -> Line {
        let bar = ProgressBar::new_spinner().with_message(message.into());
        bar.enable_steady_tick(REDRAW);
        Line { bar }
    }

    /// A bar that fills up to `total` of `unit`.
    pub(crate) fn bar(total: u64, unit: &str) -> Line {
        let template = format!("{{bar:40}} {{human_pos}}/{{human_len}} {unit}, {{eta}} left");
        let style = ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
        Line { bar: ProgressBar::new(total).with_style(style) }
    }

    /// What the line says from now on.
    pub(crate) fn say(&self, message: String) {
        self.bar.set_message(message);
    }

    /// So much more is done.
    pub(crate) fn advance(&self, by: u64) {
        self.bar.inc(by);
    }

    /// True where there is no terminal to draw on.
    pub(crate) fn is_hidden(&self) -> bool {
        self.bar.is_hidden()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Awaits `work`, and says what is waited for once it takes longer than a second.
pub(crate) async fn while_waiting<T>(message: &str, work: impl Future<Output = T>) -> T {
    let shown = async {
        sleep(PATIENCE).await;
        let _line = Line::spinner(message);
        pending().await
    };
    futures_lite::future::or(work, shown).await
}

/// A number with its thousands apart.
pub(crate) fn thousands(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut grouped = String::from(if number < 0 { "-" } else { "" });
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// So many of them, by their name in the singular.
pub(crate) fn counted(number: usize, name: &str) -> String {
    match number {
        1 => format!("1 {name}"),
        number => format!("{} {name}s", thousands(i64::try_from(number).unwrap_or(i64::MAX))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_one_is_no_plural() {
        let said = [0, 1, 2, 1500].map(|number| counted(number, "record"));
        assert_eq!(said, ["0 records", "1 record", "2 records", "1,500 records"]);
    }

    #[test]
    fn thousands_stand_apart() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1000), "1,000");
        assert_eq!(thousands(-1_234_567), "-1,234,567");
    }
}
