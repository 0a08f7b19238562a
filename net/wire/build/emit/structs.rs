//! The structs, with the defaults of their schema.

use super::{Code, Range};
use crate::schema::{Field, Kind, Message, Struct, Value, Versions};

pub(super) fn definition(
    code: &mut Code,
    message: &Message,
    each: &Struct,
    range: Range,
) -> Result<(), String> {
    let defaults = each
        .fields
        .iter()
        .map(|field| Ok((field.ident(), default(field).map_err(|what| message.error(field.line, what))?)))
        .collect::<Result<Vec<(String, String)>, String>>()?;
    let derived = each.fields.iter().all(is_rusts_default);

    code.put(format!("\n/// {}", describe(message, each, range)));
    let default = if derived { ", Default" } else { "" };
    code.put(format!("#[derive(Clone, Debug, PartialEq{default})]\npub struct {} {{", each.name));
    for field in &each.fields {
        let valid = range.versions.and(field.versions);
        code.put(format!(
            "/// {}\npub {}: {},",
            describe_field(field, valid),
            field.ident(),
            rust_type(field)
        ));
    }
    code.put("}");
    if !derived {
        code.put(format!("\nimpl Default for {} {{\nfn default() -> Self {{\nSelf {{", each.name));
        for (ident, value) in defaults {
            code.put(format!("{ident}: {value},"));
        }
        code.put("}\n}\n}");
    }
    Ok(())
}

fn describe(message: &Message, each: &Struct, range: Range) -> String {
    if each.name != message.name() {
        return format!("Part of {}, versions {}.", message.name(), range.versions);
    }
    let key = message.key.unwrap_or_default();
    let kind = match message.kind {
        Kind::Request => format!("The request with API key {key}"),
        Kind::Response => format!("The response with API key {key}"),
        Kind::Header => "A header".to_owned(),
        Kind::Data => "A message without a key".to_owned(),
        Kind::Metadata => format!("The metadata record with key {key}"),
        Kind::CoordinatorKey => format!("The key of coordinator records of type {key}"),
        Kind::CoordinatorValue => format!("The value of coordinator records of type {key}"),
    };
    format!("{kind}, versions {}, flexible {}.", message.versions(), message.flexible)
}

fn describe_field(field: &Field, valid: Versions) -> String {
    let mut text = format!("Versions {valid}");
    if field.is_option() {
        text += &format!(", null in {}", field.nullable.and(valid));
    }
    if let Some(tag) = field.tag {
        text += &format!(", tag {tag}");
    }
    if field.ignorable {
        text += ", dropped in others";
    }
    text + "."
}

pub(super) fn rust_type(field: &Field) -> String {
    let value = match &field.value {
        Value::Bool => "bool",
        Value::Int8 => "i8",
        Value::Int16 => "i16",
        Value::Uint16 => "u16",
        Value::Int32 => "i32",
        Value::Uint32 => "u32",
        Value::Int64 => "i64",
        Value::Float64 => "f64",
        Value::Uuid => "uuid::Uuid",
        Value::String => "wire::Str",
        Value::Bytes => "bytes::Bytes",
        Value::Records => "wire::Records",
        Value::Struct(name) => name,
    };
    let value = if field.array { format!("Vec<{value}>") } else { value.to_owned() };
    if field.is_option() { format!("Option<{value}>") } else { value }
}

fn is_rusts_default(field: &Field) -> bool {
    match field.default.as_deref() {
        None | Some("") => !field.is_option(),
        Some("null") => field.is_option(),
        Some(written) => match field.value {
            Value::Bool => written.eq_ignore_ascii_case("false"),
            _ => written == "0",
        },
    }
}

/// The expression for a field's default.
pub(super) fn default(field: &Field) -> Result<String, String> {
    if field.defaults_to_null() {
        return Ok("None".to_owned());
    }
    let written = field.default.as_deref().unwrap_or_default();
    let value = match &field.value {
        _ if field.array && written.is_empty() => "Vec::new()".to_owned(),
        _ if field.array => return Err(format!("an array cannot default to {written}")),
        Value::Bool => matches!(written, "true" | "True").to_string(),
        Value::Float64 if written.is_empty() => "0.0".to_owned(),
        Value::Uuid if written.is_empty() => "uuid::Uuid::nil()".to_owned(),
        Value::String if written.is_empty() => "wire::Str::default()".to_owned(),
        Value::String => format!("wire::Str::from_static({written:?})"),
        Value::Bytes if written.is_empty() => "bytes::Bytes::new()".to_owned(),
        Value::Records if written.is_empty() => "wire::Records::default()".to_owned(),
        Value::Struct(name) if written.is_empty() => format!("{name}::default()"),
        _ => number(written)?,
    };
    Ok(if field.is_option() { format!("Some({value})") } else { value })
}

fn number(written: &str) -> Result<String, String> {
    let parsed = match written.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16),
        None if written.is_empty() => Ok(0),
        None => written.parse(),
    };
    match parsed {
        Ok(i64::MAX) => Ok("i64::MAX".to_owned()),
        Ok(value) => Ok(value.to_string()),
        Err(_) => Err(format!("a number cannot default to {written}")),
    }
}

/// The expressions for "the field has its default" and "it has not".
pub(super) fn is_default(field: &Field) -> Result<(String, String), String> {
    let this = format!("self.{}", field.ident());
    let pair = |yes: String, no: String| Ok((yes, no));
    if field.defaults_to_null() {
        return pair(format!("{this}.is_none()"), format!("{this}.is_some()"));
    }
    if field.is_option() {
        let yes = match &field.value {
            Value::Struct(name) if !field.array => format!("{this}.as_ref() == Some(&{name}::default())"),
            _ => format!("{this}.as_ref().is_some_and(|value| value.is_empty())"),
        };
        return pair(yes.clone(), format!("!({yes})"));
    }
    let value = default(field)?;
    match &field.value {
        _ if field.array => pair(format!("{this}.is_empty()"), format!("!{this}.is_empty()")),
        Value::Bool if value == "true" => pair(this.clone(), format!("!{this}")),
        Value::Bool => pair(format!("!{this}"), this),
        Value::Uuid => pair(format!("{this}.is_nil()"), format!("!{this}.is_nil()")),
        Value::String | Value::Bytes | Value::Records
            if field.default.as_deref().unwrap_or_default().is_empty() =>
        {
            pair(format!("{this}.is_empty()"), format!("!{this}.is_empty()"))
        }
        _ => pair(format!("{this} == {value}"), format!("{this} != {value}")),
    }
}
