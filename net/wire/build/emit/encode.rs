//! The functions that write.

use super::{Code, Range, mentions, structs, version_parameter, with_form};
use crate::schema::{Field, Struct, Value, snake};

/// `fn encode`, which begins with `first`.
pub(super) fn function(each: &Struct, range: Range, first: &str) -> String {
    let mut body = Code::default();
    for field in each.fields.iter().filter(|field| field.tag.is_none()) {
        plain(&mut body, each, range, field);
    }
    tags(&mut body, each, range);
    let body = format!("{first}\n{}Ok(())", with_form(range, &body.text));
    let version = version_parameter(&body);
    let sink = if mentions(&body, "sink") { "sink" } else { "_sink" };
    let body = body.trim_start();
    format!(
        "fn encode<S: wire::Sink>(&self, {sink}: &mut S, {version}) -> Result<(), wire::EncodeError> {{\n{body}\n}}"
    )
}

fn plain(code: &mut Code, each: &Struct, range: Range, field: &Field) {
    let valid = range.versions.and(field.versions);
    let condition = range.condition(valid);
    if let Some(condition) = &condition {
        code.put(format!("if {condition} {{"));
    }
    if field.is_option()
        && let Some(forbidden) = (Range { versions: valid, ..range }).otherwise(field.nullable)
    {
        code.put(format!("if self.{}.is_none() && {forbidden} {{", field.ident()));
        code.put(format!("return Err(wire::EncodeError::Null {{ {}, version }});\n}}", name(each, field)));
    }
    code.put(statement(field));
    match (condition.is_some(), field.ignorable) {
        (false, _) => {}
        (true, true) => code.put("}"),
        (true, false) => {
            code.put(format!("}} else if {} {{", is_set(field)));
            code.put(format!("return Err({});\n}}", unsupported(each, field)));
        }
    }
}

fn tags(code: &mut Code, each: &Struct, range: Range) {
    let mut tagged: Vec<&Field> = each.fields.iter().filter(|field| field.tag.is_some()).collect();
    tagged.sort_by_key(|field| field.tag);
    for field in tagged.iter().filter(|field| !field.ignorable) {
        if let Some(lacking) = range.otherwise(field.versions) {
            code.put(format!("if {lacking} && {} {{", is_set(field)));
            code.put(format!("return Err({});\n}}", unsupported(each, field)));
        }
    }
    if range.flexible().is_empty() {
        return;
    }
    let condition = range.condition(range.flexible());
    if let Some(condition) = &condition {
        code.put(format!("if {condition} {{"));
    }
    let flexible = Range { versions: range.flexible(), ..range };
    for field in &tagged {
        let when = flexible.condition(field.versions).map(|when| format!("{when} && ")).unwrap_or_default();
        code.put(format!("let has_{} = {when}{};", snake(&field.name), is_set(field)));
    }
    let counts: Vec<String> =
        tagged.iter().map(|field| format!("u32::from(has_{})", snake(&field.name))).collect();
    let count = if counts.is_empty() { "0".to_owned() } else { counts.join(" + ") };
    code.put(format!("sink.put_uvarint({count});"));
    for field in &tagged {
        code.put(format!("if has_{} {{", snake(&field.name)));
        let tag = field.tag.unwrap_or_default();
        match field.value.fixed_size() {
            Some(size) if !measures(field) => code.put(format!("sink.put_tag({tag}, {size})?;")),
            _ => {
                code.put("let size = wire::measure(|sink| {");
                code.put(statement(field));
                code.put(format!("Ok(())\n}})?;\nsink.put_tag({tag}, size)?;"));
            }
        }
        code.put(statement(field));
        code.put("}");
    }
    if condition.is_some() {
        code.put("}");
    }
}

/// Whether a field's size depends on its value and stands before it.
pub(super) fn measures(field: &Field) -> bool {
    field.tag.is_some() && (field.array || field.value.fixed_size().is_none())
}

/// Whether that size is taken with the sink's own methods.
pub(super) fn measures_with_sink(field: &Field) -> bool {
    let plain_struct = field.struct_name().is_some() && !field.array && !field.is_option();
    measures(field) && !plain_struct
}

/// The statements that write a field.
fn statement(field: &Field) -> String {
    let form = if field.never_flexible { "wire::Form::Fixed" } else { "form" };
    let this = format!("self.{}", field.ident());
    if field.array {
        let elements = if field.is_option() {
            format!("{this}.as_deref()")
        } else {
            format!("Some(self.{}.as_slice())", field.ident())
        };
        let element = match &field.value {
            Value::Struct(_) => "each.encode(sink, version)".to_owned(),
            Value::String => format!("sink.put_string({form}, Some(each))"),
            Value::Bytes => format!("sink.put_bytes({form}, Some(each))"),
            Value::Records => format!("sink.put_records({form}, Some(each))"),
            value => format!("{{ sink.{}(*each); Ok(()) }}", writer(value)),
        };
        return format!("sink.put_array({form}, {elements}, |sink, each| {element})?;");
    }
    match &field.value {
        Value::Struct(_) if field.is_option() => format!(
            "sink.put_presence({this}.is_some());\nif let Some(value) = &{this} {{\nvalue.encode(sink, version)?;\n}}"
        ),
        Value::Struct(_) => format!("{this}.encode(sink, version)?;"),
        Value::String if field.is_option() => format!("sink.put_string({form}, {this}.as_deref())?;"),
        Value::Bytes | Value::Records if field.is_option() => {
            format!("sink.{}({form}, {this}.as_ref())?;", writer(&field.value))
        }
        Value::String | Value::Bytes | Value::Records => {
            format!("sink.{}({form}, Some(&{this}))?;", writer(&field.value))
        }
        value => format!("sink.{}({this});", writer(value)),
    }
}

fn writer(value: &Value) -> &'static str {
    match value {
        Value::Bool => "put_bool",
        Value::Int8 => "put_i8",
        Value::Int16 => "put_i16",
        Value::Uint16 => "put_u16",
        Value::Int32 => "put_i32",
        Value::Uint32 => "put_u32",
        Value::Int64 => "put_i64",
        Value::Float64 => "put_f64",
        Value::Uuid => "put_uuid",
        Value::String => "put_string",
        Value::Bytes => "put_bytes",
        Value::Records | Value::Struct(_) => "put_records",
    }
}

/// The expression for "the field has another value than its default".
fn is_set(field: &Field) -> String {
    structs::is_default(field).map(|(_, is_not)| is_not).unwrap_or_default()
}

fn unsupported(each: &Struct, field: &Field) -> String {
    format!("wire::EncodeError::UnsupportedField {{ {}, version }}", name(each, field))
}

fn name(each: &Struct, field: &Field) -> String {
    format!("field: \"{}.{}\"", each.name, field.ident())
}
