//! What is told of each measurement, in the columns of a table and in JSON.

use std::fmt::{self, Write as _};

use serde_json::{Map, Value};

use super::spread::Spread;

/// Something that each measurement of a kind shows.
pub(crate) struct Quantity<T> {
    /// Its name in JSON.
    pub(crate) key: &'static str,
    /// Its name in a table.
    pub(crate) title: &'static str,
    /// Digits after the point in a table.
    pub(crate) decimals: usize,
    /// Reads it.
    pub(crate) of: fn(&T) -> f64,
}

impl<T> Quantity<T> {
    /// One of this name in JSON and in a table, with so many digits there.
    pub(crate) const fn new(
        key: &'static str,
        title: &'static str,
        decimals: usize,
        of: fn(&T) -> f64,
    ) -> Quantity<T> {
        Quantity { key, title, decimals, of }
    }
}

/// A table with a line for each quantity: its spread over the rounds.
pub(crate) fn write_rounds<T>(text: &mut String, quantities: &[Quantity<T>], rounds: &[T]) -> fmt::Result {
    writeln!(text, "{} rounds: median (least–most)\n\n| | |\n|---|---|", rounds.len())?;
    for quantity in quantities {
        if let Some(spread) = Spread::of(rounds.iter().map(quantity.of)) {
            writeln!(text, "| {} | {} |", quantity.title, spread.text(quantity.decimals))?;
        }
    }
    Ok(())
}

/// The first two lines of a table whose first columns are these.
pub(crate) fn table_head<T>(first: &[&str], quantities: &[Quantity<T>]) -> String {
    let titles = first.iter().copied().chain(quantities.iter().map(|quantity| quantity.title));
    let titles: Vec<&str> = titles.collect();
    format!("| {} |\n|{}\n", titles.join(" | "), "---|".repeat(titles.len()))
}

/// One line of it: the spread of each quantity over these measurements.
pub(crate) fn table_line<T>(first: &[&str], quantities: &[Quantity<T>], measured: &[T]) -> String {
    let spread = |quantity: &Quantity<T>| {
        let spread = Spread::of(measured.iter().map(quantity.of));
        spread.map_or_else(String::new, |spread| spread.text(quantity.decimals))
    };
    let cells = first.iter().map(|cell| (*cell).to_owned()).chain(quantities.iter().map(spread));
    format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
}

/// The same as JSON.
pub(crate) fn spreads<T>(quantities: &[Quantity<T>], measured: &[T]) -> Map<String, Value> {
    let spread = |quantity: &Quantity<T>| {
        let spread = Spread::of(measured.iter().map(quantity.of))?;
        Some((quantity.key.to_owned(), spread.json()))
    };
    quantities.iter().filter_map(spread).collect()
}

/// Each quantity of one measurement, as JSON.
pub(crate) fn values<T>(quantities: &[Quantity<T>], measured: &T) -> Map<String, Value> {
    let value = |quantity: &Quantity<T>| (quantity.key.to_owned(), Value::from((quantity.of)(measured)));
    quantities.iter().map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantity_is_a_column_and_a_key() {
        let halves = [Quantity { key: "half", title: "half", decimals: 1, of: |whole: &f64| whole / 2.0 }];
        assert_eq!(table_head(&["of"], &halves), "| of | half |\n|---|---|\n");
        assert_eq!(table_line(&["it"], &halves, &[1.0, 3.0]), "| it | 1.0 (0.5–1.5) |\n");
        assert_eq!(spreads(&halves, &[1.0, 3.0])["half"]["median"], Value::from(1.0));
        assert_eq!(values(&halves, &3.0)["half"], Value::from(1.5));
    }
}
