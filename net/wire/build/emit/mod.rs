//! Writes Rust. One module for each message: its structs, how they are read, how they are written.

mod decode;
mod encode;
mod errors;
mod instances;
mod structs;
mod tables;

use std::fmt::Write;

use crate::schema::{Kind, Message, Struct, Versions, snake};

pub(crate) use instances::instances;
pub(crate) use tables::{api_table, metadata_records};

/// Text with an indentation.
#[derive(Default)]
struct Code {
    text: String,
    depth: usize,
}

impl Code {
    /// Appends lines. A line that ends with an opening bracket indents what follows; one that begins with
    /// a closing bracket ends that.
    fn put(&mut self, lines: impl AsRef<str>) {
        for line in lines.as_ref().split('\n').map(str::trim) {
            if line.starts_with(['}', ')', ']']) {
                self.depth -= 1;
            }
            if !line.is_empty() {
                let _ = writeln!(self.text, "{:1$}{line}", "", 4 * self.depth);
            } else {
                self.text.push('\n');
            }
            if line.ends_with(['{', '(', '[']) {
                self.depth += 1;
            }
        }
    }
}

/// The versions in which a struct occurs, and what its message says about them.
#[derive(Clone, Copy)]
struct Range {
    versions: Versions,
    /// `i16::MAX` where none is.
    flexible_from: i16,
}

impl Range {
    fn of(message: &Message, each: &Struct) -> Range {
        Range { versions: message.range(each), flexible_from: flexible_from(message) }
    }

    /// When `version` is among `some`; `None` where it always is.
    fn condition(self, some: Versions) -> Option<String> {
        let some = some.and(self.versions);
        let Versions { first, last } = some;
        match (first > self.versions.first, last < self.versions.last) {
            (false, false) => None,
            (true, false) => Some(format!("version >= {first}")),
            (false, true) => Some(format!("version <= {last}")),
            (true, true) if first == last => Some(format!("version == {first}")),
            (true, true) => Some(format!("({first}..={last}).contains(&version)")),
        }
    }

    /// When `version` is not among `some`; `None` where it always is among them.
    fn otherwise(self, some: Versions) -> Option<String> {
        let some = some.and(self.versions);
        let Versions { first, last } = some;
        match (first > self.versions.first, last < self.versions.last) {
            (false, false) => None,
            (true, false) => Some(format!("version < {first}")),
            (false, true) => Some(format!("version > {last}")),
            (true, true) if first == last => Some(format!("version != {first}")),
            (true, true) => Some(format!("!({first}..={last}).contains(&version)")),
        }
    }

    fn flexible(self) -> Versions {
        Versions { first: self.flexible_from, last: i16::MAX }.and(self.versions)
    }

    /// The expression for the form of lengths.
    fn form(self) -> String {
        match (self.flexible().is_empty(), self.condition(self.flexible())) {
            (true, _) => "wire::Form::Fixed".to_owned(),
            (_, None) => "wire::Form::Compact".to_owned(),
            _ => format!("wire::Form::of(version, {})", self.flexible_from),
        }
    }
}

/// The first flexible version; `i16::MAX` where none is.
fn flexible_from(message: &Message) -> i16 {
    if message.flexible.is_empty() { i16::MAX } else { message.flexible.first }
}

/// All modules, and the re-exports of what the messages are called.
pub(crate) fn messages(messages: &[&Message]) -> Result<String, String> {
    let mut code = Code::default();
    for message in messages {
        code.put(format!("pub use {}::{};", snake(message.name()), message.name()));
    }
    for message in messages {
        module(&mut code, message)?;
    }
    Ok(code.text)
}

fn module(code: &mut Code, message: &Message) -> Result<(), String> {
    code.put(format!("\n/// {}.\npub mod {} {{", message.name(), snake(message.name())));
    code.put("use crate::message as wire;");
    if message.all_structs().flat_map(|each| &each.fields).any(encode::measures_with_sink) {
        code.put("use wire::Sink as _;");
    }
    for each in message.all_structs() {
        let range = Range::of(message, each);
        if range.versions.is_empty() {
            return Err(message.error(each.line, format!("{} is not used", each.name)));
        }
        structs::definition(code, message, each, range)?;
        if each.name == message.name() {
            message_impl(code, message, range);
            marker(code, message);
        } else {
            code.put(format!("\nimpl {} {{", each.name));
            code.put(decode::function(message, each, range, ""));
            code.put("");
            code.put(encode::function(each, range, ""));
            if message.kind == Kind::Response && errors::has_some(message, each) {
                code.put("");
                code.put(errors::function(message, each, range));
            }
            code.put("}");
        }
    }
    code.put("}");
    Ok(())
}

/// `impl Message`.
fn message_impl(code: &mut Code, message: &Message, range: Range) {
    let name = message.name();
    let Versions { first, last } = message.versions();
    code.put(format!("\nimpl wire::Message for {name} {{"));
    code.put(format!("const NAME: &'static str = \"{name}\";"));
    code.put(format!("const MIN_VERSION: i16 = {first};\nconst MAX_VERSION: i16 = {last};"));
    match range.flexible_from {
        i16::MAX => code.put("const FLEXIBLE_FROM: i16 = i16::MAX;"),
        from => code.put(format!("const FLEXIBLE_FROM: i16 = {from};")),
    }
    code.put("");
    code.put(decode::function(message, &message.root, range, "wire::check_read::<Self>(version)?;"));
    code.put("");
    code.put(encode::function(&message.root, range, "wire::check_write::<Self>(version)?;"));
    code.put("}");
}

/// The trait that says what kind of message it is.
fn marker(code: &mut Code, message: &Message) {
    let (name, key) = (message.name(), message.key.unwrap_or_default());
    match message.kind {
        Kind::Request => {
            let response = format!("{}Response", message.list_name());
            code.put(format!("\nimpl wire::Request for {name} {{\nconst KEY: i16 = {key};"));
            code.put(format!("type Response = super::{}::{response};\n}}", snake(&response)));
        }
        Kind::Response => {
            code.put(format!("\nimpl wire::Response for {name} {{\nconst KEY: i16 = {key};\n"));
            code.put(errors::function(message, &message.root, Range::of(message, &message.root)));
            code.put("}");
        }
        Kind::CoordinatorKey | Kind::CoordinatorValue => {
            let half = if message.kind == Kind::CoordinatorKey { "Key" } else { "Value" };
            code.put(format!("\nimpl wire::Coordinator{half} for {name} {{\nconst TYPE: i16 = {key};\n}}"));
        }
        Kind::Header | Kind::Data | Kind::Metadata => {}
    }
}

/// `fn`'s parameter for the version, marked where `body` ignores it.
fn version_parameter(body: &str) -> &'static str {
    if mentions(body, "version") { "version: i16" } else { "_version: i16" }
}

/// `body` with the line that defines `form`, where it uses that.
fn with_form(range: Range, body: &str) -> String {
    if mentions(body, "form") { format!("let form = {};\n{body}", range.form()) } else { body.to_owned() }
}

/// Whether `code` uses the variable `name`; a field or a longer word does not count.
fn mentions(code: &str, name: &str) -> bool {
    let part_of_word = |each: char| each.is_ascii_alphanumeric() || each == '_';
    code.match_indices(name).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + name.len()..].chars().next();
        !before.is_some_and(|each| part_of_word(each) || each == '.') && !after.is_some_and(part_of_word)
    })
}
