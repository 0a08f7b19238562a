//! Which key a person meant who mistyped one.

/// The name that the fewest changes of one character make of `given`; the first of several.
pub(crate) fn nearest<'a>(given: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    names.into_iter().min_by_key(|name| changes(given, name))
}

/// How many characters must be put in, left out or replaced to make one of the other.
fn changes(given: &str, name: &str) -> usize {
    let mut row: Vec<usize> = (0..=name.chars().count()).collect();
    for (done, from) in given.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = done + 1;
        for (at, to) in name.chars().enumerate() {
            let replaced = diagonal + usize::from(from != to);
            diagonal = row[at + 1];
            row[at + 1] = replaced.min(diagonal + 1).min(row[at] + 1);
        }
    }
    row[row.len() - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_counted() {
        for (given, name, expected) in
            [("", "", 0), ("", "ab", 2), ("core", "cores", 1), ("kitten", "sitting", 3), ("ab", "ba", 2)]
        {
            assert_eq!((changes(given, name), changes(name, given)), (expected, expected), "{given} {name}");
        }
    }

    #[test]
    fn the_nearest_is_the_one_with_the_fewest_changes() {
        assert_eq!(nearest("b.core", ["a.cores", "b.cores", "b.count"]), Some("b.cores"));
        assert_eq!(nearest("b", []), None);
    }
}
