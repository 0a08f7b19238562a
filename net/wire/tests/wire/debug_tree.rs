//! Compares two structs of different crates by the names of their fields.
//!
//! Equal bytes do not prove that both sides call the same bytes by the same name: two `int32` fields that
//! change places look the same. What `Debug` prints has the names.

/// A value as `Debug` prints it; names of types are dropped.
#[derive(Debug, PartialEq)]
enum Tree {
    Fields(Vec<(String, Tree)>),
    List(Vec<Tree>),
    Leaf(String),
}

/// Fields that `kafka-protocol` still has, although no valid version of their message has them any more.
const OBSOLETE: [&str; 1] = ["partition_max_bytes"];

/// Fields that Kafka has renamed since: its name there, and here.
const RENAMED: [(&str, &str); 1] = [("generation_id", "generation_id_or_member_epoch")];

/// Where the two differ, if they do: every field that `theirs` has must be in `ours` with the same value.
pub(crate) fn difference(ours: &str, theirs: &str) -> Option<String> {
    compare(&parse(ours), &parse(theirs), "")
}

fn compare(ours: &Tree, theirs: &Tree, path: &str) -> Option<String> {
    match (ours, theirs) {
        (Tree::Fields(ours), Tree::Fields(theirs)) => {
            theirs.iter().filter(|(name, _)| name != "unknown_tagged_fields").find_map(|(name, value)| {
                let path = format!("{path}.{name}");
                match named(ours, name) {
                    Some(found) => compare(found, value, &path),
                    None if OBSOLETE.contains(&name.as_str()) => None,
                    None => Some(format!("{path} is missing")),
                }
            })
        }
        (Tree::List(ours), Tree::List(theirs)) if ours.len() == theirs.len() => {
            ours.iter().zip(theirs).find_map(|(ours, theirs)| compare(ours, theirs, path))
        }
        _ => (ours != theirs).then(|| format!("{path}: {ours:?} and {theirs:?}")),
    }
}

/// The field of `ours` that `theirs` calls `name`.
fn named<'t>(ours: &'t [(String, Tree)], name: &str) -> Option<&'t Tree> {
    let find =
        |name: &str| ours.iter().find(|(each, _)| letters(each) == letters(name)).map(|(_, tree)| tree);
    let renamed = || RENAMED.iter().find(|(theirs, _)| *theirs == name).and_then(|(_, ours)| find(ours));
    find(name).or_else(renamed)
}

/// A name without its underscores, which the crates put in different places.
fn letters(name: &str) -> String {
    name.replace('_', "")
}

fn parse(text: &str) -> Tree {
    let (tree, rest) = value(text);
    assert_eq!(rest, "", "the end of {text}");
    tree
}

fn value(text: &str) -> (Tree, &str) {
    if let Some(rest) = text.strip_prefix('[') {
        let (items, rest) = items(rest, ']', value);
        return (Tree::List(items), rest);
    }
    if let Some(rest) = text.strip_prefix("{}") {
        return (Tree::Fields(Vec::new()), rest);
    }
    let end = leaf_end(text);
    let (leaf, rest) = text.split_at(end);
    if let Some(rest) = rest.strip_prefix(" {") {
        let (fields, rest) = items(rest.trim_start(), '}', |text| {
            let (name, rest) = text.split_once(": ").expect("a field has a name");
            let (value, rest) = value(rest);
            ((name.to_owned(), value), rest)
        });
        return (Tree::Fields(fields), rest);
    }
    if let Some(rest) = rest.strip_prefix('(') {
        let (mut inner, rest) = items(rest, ')', value);
        assert_eq!((leaf, inner.len()), ("Some", 1));
        return (inner.remove(0), rest);
    }
    (Tree::Leaf(leaf.to_owned()), rest)
}

/// What stands between separators, up to `close`.
fn items<T>(mut text: &str, close: char, item: impl Fn(&str) -> (T, &str)) -> (Vec<T>, &str) {
    let mut found = Vec::new();
    loop {
        text = text.trim_start_matches([',', ' ']);
        if let Some(rest) = text.strip_prefix(close) {
            return (found, rest);
        }
        assert!(!text.is_empty(), "{close} is missing");
        let (each, rest) = item(text);
        found.push(each);
        text = rest;
    }
}

/// Where a string, a number or a name ends.
fn leaf_end(text: &str) -> usize {
    let quoted = text.strip_prefix('b').unwrap_or(text).strip_prefix('"');
    let Some(inside) = quoted else {
        return text.find([',', ' ', ')', ']', '}', '(']).unwrap_or(text.len());
    };
    let mut escaped = false;
    let close = inside.find(|each| {
        let closes = each == '"' && !escaped;
        escaped = each == '\\' && !escaped;
        closes
    });
    text.len() - inside.len() + close.expect("a string is closed") + 1
}

#[test]
fn fields_that_changed_places_are_noticed() {
    let ours = r#"Pair { low: 1, high: 2, name: Some("a\"}") }"#;
    assert_eq!(
        difference(ours, r#"Other { low: 1, high: 2, name: Some("a\"}"), unknown_tagged_fields: {} }"#),
        None
    );
    assert!(difference(ours, "Other { high: 1, low: 2 }").is_some_and(|found| found.starts_with(".high")));
    assert!(difference("[A { of: [1, 2] }]", "[B { of: [2, 1] }]").is_some());
}
