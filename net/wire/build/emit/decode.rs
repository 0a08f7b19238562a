//! The functions that read.

use super::{Code, Range, mentions, version_parameter, with_form};
use crate::schema::{Field, Message, Struct, Value};

/// `fn decode`, which begins with `first`.
pub(super) fn function(message: &Message, each: &Struct, range: Range, first: &str) -> String {
    let mut body = Code::default();
    for field in each.fields.iter().filter(|field| field.tag.is_none()) {
        plain(&mut body, message, each, range, field);
    }
    tags(&mut body, message, each, range);
    let fills = if mentions(&body.text, "it") { "let mut it" } else { "let it" };
    let cursor = if mentions(&body.text, "cursor") { "cursor" } else { "_cursor" };
    let body = format!("{first}\n{fills} = Self::default();\n{}Ok(it)", with_form(range, &body.text));
    let version = version_parameter(&body);
    let body = body.trim_start();
    format!(
        "fn decode({cursor}: &mut wire::Cursor, {version}) -> Result<Self, wire::DecodeError> {{\n{body}\n}}"
    )
}

fn plain(code: &mut Code, message: &Message, each: &Struct, range: Range, field: &Field) {
    let valid = range.versions.and(field.versions);
    let ident = field.ident();
    let condition = range.condition(valid);
    if let Some(condition) = &condition {
        code.put(format!("if {condition} {{"));
    }
    code.put(format!("it.{ident} = {};", expression(message, each, field)));
    if field.is_option()
        && let Some(forbidden) = (Range { versions: valid, ..range }).otherwise(field.nullable)
    {
        code.put(format!("if it.{ident}.is_none() && {forbidden} {{"));
        let what = format!("{}.{ident}", each.name);
        code.put(format!(
            "return Err(wire::DecodeError::Null {{ at: cursor.position(), what: \"{what}\" }});\n}}"
        ));
    }
    if condition.is_some() {
        code.put("}");
    }
}

fn tags(code: &mut Code, message: &Message, each: &Struct, range: Range) {
    if range.flexible().is_empty() {
        return;
    }
    let condition = range.condition(range.flexible());
    if let Some(condition) = &condition {
        code.put(format!("if {condition} {{"));
    }
    let mut tagged: Vec<&Field> = each.fields.iter().filter(|field| field.tag.is_some()).collect();
    tagged.sort_by_key(|field| field.tag);
    if tagged.is_empty() {
        code.put("cursor.skip_tags()?;");
    } else {
        code.put("cursor.get_tags(|tag, cursor| {\nmatch tag {");
        for field in tagged {
            let flexible = Range { versions: range.flexible(), ..range };
            let guard = flexible.condition(field.versions).map(|when| format!(" if {when}"));
            let (tag, guard) = (field.tag.unwrap_or_default(), guard.unwrap_or_default());
            let value = expression(message, each, field);
            code.put(format!("{tag}{guard} => it.{} = {value},", field.ident()));
        }
        code.put("_ => return Ok(wire::Tag::Unknown),\n}\nOk(wire::Tag::Known)\n})?;");
    }
    if condition.is_some() {
        code.put("}");
    }
}

/// The expression that reads a field.
fn expression(message: &Message, each: &Struct, field: &Field) -> String {
    let form = if field.never_flexible { "wire::Form::Fixed" } else { "form" };
    let nullable = if field.is_option() { "nullable_" } else { "" };
    if field.array {
        let smallest = smallest(message, each, field);
        let element = match &field.value {
            Value::Struct(name) => format!("|cursor| {name}::decode(cursor, version)"),
            value => match reader(value) {
                (get, true) => format!("|cursor| cursor.{get}({form})"),
                (get, false) => format!("wire::Cursor::{get}"),
            },
        };
        return format!("cursor.get_{nullable}array({form}, {smallest}, {element})?");
    }
    match &field.value {
        Value::Struct(name) if field.is_option() => {
            format!("if cursor.get_presence()? {{ Some({name}::decode(cursor, version)?) }} else {{ None }}")
        }
        Value::Struct(name) => format!("{name}::decode(cursor, version)?"),
        value => match reader(value) {
            (get, true) => format!("cursor.{}({form})?", get.replacen("get_", &format!("get_{nullable}"), 1)),
            (get, false) => format!("cursor.{get}()?"),
        },
    }
}

/// The cursor's method for a value that is no struct, and whether it asks for the form.
fn reader(value: &Value) -> (&'static str, bool) {
    match value {
        Value::Bool => ("get_bool", false),
        Value::Int8 => ("get_i8", false),
        Value::Int16 => ("get_i16", false),
        Value::Uint16 => ("get_u16", false),
        Value::Int32 => ("get_i32", false),
        Value::Uint32 => ("get_u32", false),
        Value::Int64 => ("get_i64", false),
        Value::Float64 => ("get_f64", false),
        Value::Uuid => ("get_uuid", false),
        Value::String => ("get_string", true),
        Value::Bytes => ("get_bytes", true),
        Value::Records | Value::Struct(_) => ("get_records", true),
    }
}

/// The least that one element takes in any version.
pub(super) fn smallest(message: &Message, each: &Struct, field: &Field) -> usize {
    let valid = message.field_range(each, field);
    let sizes = (valid.first..=valid.last).map(|version| {
        let flexible = message.flexible.contains(version) && !field.never_flexible;
        message.smallest_value(&field.value, flexible, version)
    });
    sizes.min().unwrap_or(1)
}
