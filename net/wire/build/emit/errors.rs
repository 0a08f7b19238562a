//! The functions that tell which errors a response has: every field of the name `ErrorCode` that its version has.

use super::{Code, Range, version_parameter};
use crate::schema::{Field, Message, Struct, Value};

/// Whether a struct has an error, itself or in what it holds.
pub(super) fn has_some(message: &Message, each: &Struct) -> bool {
    let holds = |field: &Field| field.struct_name().and_then(|name| message.find(name));
    each.fields
        .iter()
        .any(|field| is_error(field) || holds(field).is_some_and(|held| has_some(message, held)))
}

/// `fn each_error`.
pub(super) fn function(message: &Message, each: &Struct, range: Range) -> String {
    let mut body = Code::default();
    for field in &each.fields {
        let Some(statement) = statement(message, field) else { continue };
        match range.condition(field.versions) {
            Some(condition) => body.put(format!("if {condition} {{\n{statement}\n}}")),
            None => body.put(statement),
        }
    }
    let version = if body.text.contains("version") { version_parameter("version") } else { "_version: i16" };
    let tell = if body.text.is_empty() { "_tell" } else { "tell" };
    format!(
        "fn each_error(&self, {version}, {tell}: &mut dyn FnMut(wire::ErrorCode)) {{\n{}\n}}",
        body.text.trim()
    )
}

fn statement(message: &Message, field: &Field) -> Option<String> {
    let this = format!("self.{}", field.ident());
    if is_error(field) {
        return Some(format!("tell(wire::ErrorCode({this}));"));
    }
    let held = field.struct_name().and_then(|name| message.find(name))?;
    if !has_some(message, held) {
        return None;
    }
    Some(match (field.array, field.is_option()) {
        (false, false) => format!("{this}.each_error(version, tell);"),
        (true, true) => {
            format!("for each in {this}.iter().flatten() {{\neach.each_error(version, tell);\n}}")
        }
        _ => format!("for each in &{this} {{\neach.each_error(version, tell);\n}}"),
    })
}

fn is_error(field: &Field) -> bool {
    field.name == "ErrorCode" && field.value == Value::Int16 && !field.array
}
