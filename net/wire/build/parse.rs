//! Reads the line format of the schemas (see `schemas/README.md`).

use crate::mirror_numbers;
use crate::schema::{Field, Kind, Message, Struct, Value, Versions};

type Parsed<T> = Result<T, String>;

/// The messages of one file.
pub(crate) fn file(name: &str, text: &str) -> Parsed<Vec<Message>> {
    let mut messages: Vec<Message> = Vec::new();
    // The structs that following lines may add fields to, outermost first: (indentation, name).
    let mut open: Vec<(usize, String)> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let fail = |what: String| format!("schemas/{name}:{number}: {what}");
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(head) = line.strip_prefix("@ ") {
            let message = message(name, number, head).map_err(fail)?;
            open = vec![(0, message.name().to_owned())];
            messages.push(message);
            continue;
        }
        let current = messages.last_mut().ok_or_else(|| fail("a field before any message".to_owned()))?;
        let indent = line.len() - line.trim_start().len();
        if indent == 0 || indent % 2 != 0 {
            return Err(fail(format!("indented by {indent} spaces")));
        }
        open.retain(|(depth, _)| *depth < indent);
        if open.last().map(|(depth, _)| depth + 2) != Some(indent) {
            return Err(fail("indented below a line that has no fields".to_owned()));
        }
        entry(current, &mut open, number, indent, line.trim()).map_err(fail)?;
    }
    for message in &mut messages {
        let valid = message.versions();
        let fields =
            std::iter::once(&mut message.root).chain(&mut message.structs).map(|each| &mut each.fields);
        // Kafka keeps the history of fields that no valid version has any more.
        fields.for_each(|fields| fields.retain(|field| !field.versions.and(valid).is_empty()));
        // A nested struct that got no fields was a mention of one defined elsewhere in the message.
        message.structs.retain(|each| !each.fields.is_empty());
    }
    Ok(messages)
}

fn message(file: &str, line: usize, head: &str) -> Parsed<Message> {
    let mut words = head.split(' ');
    let kind = match words.next().unwrap_or_default() {
        "request" => Kind::Request,
        "response" => Kind::Response,
        "header" => Kind::Header,
        "data" => Kind::Data,
        "metadata" => Kind::Metadata,
        "coordinator-key" => Kind::CoordinatorKey,
        "coordinator-value" => Kind::CoordinatorValue,
        other => return Err(format!("unknown kind of message {other}")),
    };
    let name = words.next().ok_or("a message without a name")?.to_owned();
    let mut message = Message {
        file: file.to_owned(),
        kind,
        key: None,
        flexible: Versions::NONE,
        listeners: Vec::new(),
        latest_unstable: false,
        root: Struct { line, name, versions: Versions::NONE, fields: Vec::new() },
        structs: Vec::new(),
    };
    for word in words {
        match word.split_once('=') {
            Some(("key", "-")) => {}
            Some(("key", "mirror")) => message.key = Some(mirror_key(message.list_name())?),
            Some(("key", key)) => message.key = Some(key.parse().map_err(|_| format!("key {key}"))?),
            Some(("v", versions)) => message.root.versions = self::versions(versions)?,
            Some(("flex", versions)) => message.flexible = self::versions(versions)?,
            Some(("listeners", names)) => message.listeners = names.split('+').map(str::to_owned).collect(),
            None if word == "LATEST_UNSTABLE" => message.latest_unstable = true,
            _ => return Err(format!("unknown attribute {word}")),
        }
    }
    Ok(message)
}

fn mirror_key(name: &str) -> Parsed<i16> {
    let found = mirror_numbers::API_KEYS.iter().find(|(known, _)| *known == name);
    found.map(|(_, key)| *key).ok_or_else(|| format!("mirror_numbers.rs has no API key for {name}"))
}

/// A field of the innermost open struct, or a `struct` line.
fn entry(
    message: &mut Message,
    open: &mut Vec<(usize, String)>,
    line: usize,
    indent: usize,
    text: &str,
) -> Parsed<()> {
    let (owner_indent, owner) = open.last().cloned().unwrap_or_default();
    let mut begin = |name: &str, versions| {
        open.push((indent, name.to_owned()));
        message.structs.push(Struct { line, name: name.to_owned(), versions, fields: Vec::new() });
    };
    if let Some(shared) = text.strip_prefix("struct ") {
        let (name, written) = shared.split_once(' ').ok_or("a struct without versions")?;
        begin(name, versions(written)?);
        return Ok(());
    }
    let field = field(line, text)?;
    if let Some(nested) = field.struct_name() {
        begin(nested, Versions::ALL);
    }
    let owner = match owner_indent {
        0 => &mut message.root,
        _ => message.structs.iter_mut().rfind(|each| each.name == owner).ok_or("a field of nothing")?,
    };
    owner.fields.push(field);
    Ok(())
}

fn field(line: usize, text: &str) -> Parsed<Field> {
    let mut words = text.split(' ');
    let name = words.next().unwrap_or_default().to_owned();
    let written = words.next().ok_or_else(|| format!("{name} has no type"))?;
    let (array, element) = match written.strip_prefix("[]") {
        Some(element) => (true, element),
        None => (false, written),
    };
    let value = Value::named(element).ok_or_else(|| format!("unknown type {written}"))?;
    let valid = words.next().ok_or_else(|| format!("{name} has no versions"))?;
    let mut field = Field {
        line,
        name,
        value,
        array,
        versions: Versions::NONE,
        nullable: Versions::NONE,
        tag: None,
        default: None,
        ignorable: false,
        never_flexible: false,
    };
    let mut tagged = None;
    for word in words {
        match word.split_once('=').unwrap_or((word, "")) {
            ("key" | "ent", _) => {}
            ("ign", "") => field.ignorable = true,
            ("null", written) => field.nullable = versions(written)?,
            ("def", "None") => field.default = Some("null".to_owned()),
            ("def", written) => field.default = Some(written.to_owned()),
            ("flex", "none") => field.never_flexible = true,
            ("tag", written) => {
                let (tag, at) = written.split_once('@').ok_or("a tag without versions")?;
                field.tag = Some(tag.parse().map_err(|_| format!("tag {tag}"))?);
                tagged = Some(versions(at)?);
            }
            _ => return Err(format!("unknown attribute {word}")),
        }
    }
    field.versions = match (valid, tagged) {
        ("*", Some(tagged)) => tagged,
        ("*", None) => return Err("versions * without a tag".to_owned()),
        (written, None) => versions(written)?,
        (written, Some(tagged)) if versions(written)? == tagged => tagged,
        (written, Some(tagged)) => return Err(format!("in versions {written}, but tagged in {tagged}")),
    };
    Ok(field)
}

/// `3+`, `0-12`, `4` or `none`.
fn versions(written: &str) -> Parsed<Versions> {
    let number = |text: &str| text.parse::<i16>().map_err(|_| format!("versions {written}"));
    if written == "none" {
        return Ok(Versions::NONE);
    }
    if let Some(first) = written.strip_suffix('+') {
        return Ok(Versions { first: number(first)?, last: i16::MAX });
    }
    match written.split_once('-') {
        Some((first, last)) => Ok(Versions { first: number(first)?, last: number(last)? }),
        None => number(written).map(|only| Versions { first: only, last: only }),
    }
}
