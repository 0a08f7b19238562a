//! Refuses schemas that do not hang together. Every refusal names file and line.

use std::collections::BTreeMap;

use crate::schema::{Field, Kind, Message, Struct, Value};

type Checked = Result<(), String>;

/// Names that a struct of a schema cannot have, because the generated code uses them.
const RESERVED: [&str; 5] = ["Option", "Vec", "Self", "Result", "Default"];

pub(crate) fn all(messages: &[Message]) -> Checked {
    let mut names = BTreeMap::new();
    let mut keys = BTreeMap::new();
    for message in messages {
        if let Some(other) = names.insert(message.name(), message) {
            let what = format!("{} is also in {}:{}", message.name(), other.file, other.root.line);
            return Err(message.error(message.root.line, what));
        }
        if matches!(message.kind, Kind::Request | Kind::Response | Kind::Metadata)
            && let Some(other) = keys.insert((message.kind as u8, message.key), message)
        {
            let what = format!("{} and {} have the same key", message.name(), other.name());
            return Err(message.error(message.root.line, what));
        }
        head(message, messages)?;
        if let Some(endless) = message.all_structs().find(|each| message.reaches(each, &each.name)) {
            return Err(message.error(endless.line, format!("{} contains itself", endless.name)));
        }
        for each in message.all_structs() {
            structure(message, each)?;
        }
    }
    Ok(())
}

fn head(message: &Message, messages: &[Message]) -> Checked {
    let fail = |what: &str| Err(message.error(message.root.line, format!("{}: {what}", message.name())));
    if message.versions().is_empty() {
        return fail("no versions");
    }
    if !message.flexible.is_empty() && message.flexible.last != i16::MAX {
        return fail("flexible versions end");
    }
    let needs_key = !matches!(message.kind, Kind::Header | Kind::Data);
    if needs_key != message.key.is_some() {
        return fail("a key where there should be none, or none where there should be one");
    }
    let partner = match message.kind {
        Kind::Request => Some(Kind::Response),
        Kind::Response => Some(Kind::Request),
        Kind::CoordinatorKey => Some(Kind::CoordinatorValue),
        Kind::CoordinatorValue => Some(Kind::CoordinatorKey),
        Kind::Header | Kind::Data | Kind::Metadata => None,
    };
    let same_pair = |other: &&Message| pair_name(other) == pair_name(message) && other.key == message.key;
    if let Some(kind) = partner
        && !messages.iter().filter(|other| other.kind == kind).any(|other| same_pair(&other))
    {
        return fail("its other half is missing or has another key");
    }
    Ok(())
}

/// What a request shares with its response, and a key with its value.
fn pair_name(message: &Message) -> &str {
    let name = message.list_name();
    match message.kind {
        Kind::CoordinatorKey => name.trim_end_matches("Key"),
        Kind::CoordinatorValue => name.trim_end_matches("Value"),
        _ => name,
    }
}

fn structure(message: &Message, each: &Struct) -> Checked {
    let fail = |line: usize, what: String| Err(message.error(line, format!("{}: {what}", each.name)));
    if RESERVED.contains(&each.name.as_str()) {
        return fail(each.line, "the generated code uses this name".to_owned());
    }
    if message.all_structs().filter(|other| other.name == each.name).count() > 1 {
        return fail(each.line, "defined twice in one message".to_owned());
    }
    let mut tags: Vec<u32> = each.fields.iter().filter_map(|field| field.tag).collect();
    tags.sort_unstable();
    for (expected, &tag) in tags.iter().enumerate() {
        if tag as usize != expected {
            let line = each.fields.iter().find(|field| field.tag == Some(tag)).map_or(each.line, |f| f.line);
            return fail(line, format!("tag {tag} where {expected} is the next: tags are 0, 1, 2, …"));
        }
    }
    for field in &each.fields {
        self::field(message, each, field)
            .map_err(|what| message.error(field.line, format!("{}.{}: {what}", each.name, field.name)))?;
    }
    Ok(())
}

fn field(message: &Message, owner: &Struct, field: &Field) -> Checked {
    let valid = message.field_range(owner, field);
    if each_name_twice(owner, field) {
        return Err("defined twice".to_owned());
    }
    if valid.is_empty() {
        return Err("in no version of its message".to_owned());
    }
    if let Value::Struct(name) = &field.value
        && message.find(name).is_none()
    {
        return Err(format!("unknown type {name}"));
    }
    if field.tag.is_some() && !message.flexible.covers(valid) {
        return Err("tagged in a version that is not flexible".to_owned());
    }
    if field.tag.is_some() && field.is_option() && !field.nullable.covers(valid) {
        return Err("tagged, but null only in some of its versions".to_owned());
    }
    if field.is_option() && !field.array && field.value.fixed_size().is_some() {
        return Err("this type cannot be null".to_owned());
    }
    if field.default.as_deref() == Some("null") && !field.is_option() {
        return Err("null by default, but never nullable".to_owned());
    }
    let smallest_of = |version| {
        let flexible = message.flexible.contains(version) && !field.never_flexible;
        message.smallest_value(&field.value, flexible, version)
    };
    if field.array && (valid.first..=valid.last).any(|version| smallest_of(version) == 0) {
        return Err("an element may take no bytes, so that its count has no bound".to_owned());
    }
    Ok(())
}

fn each_name_twice(owner: &Struct, field: &Field) -> bool {
    owner.fields.iter().filter(|other| other.ident() == field.ident()).count() > 1
}
