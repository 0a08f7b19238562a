//! For the tests: how to fill every struct with values that a version can carry.

use super::{Code, Range};
use crate::schema::{Field, Message, Struct, Value, snake};

/// An `impl Instance` for every struct; the macro `every_message`, which names every message; and the macro
/// `every_array`, which names the struct in every array and the least that one takes on the wire.
pub(crate) fn instances(messages: &[&Message]) -> String {
    let mut code = Code::default();
    for message in messages {
        for each in message.all_structs() {
            instance(&mut code, message, each);
        }
    }
    code.put("\nmacro_rules! every_message {\n($visit:ident) => {");
    for message in messages {
        code.put(format!("$visit!({});", message.name()));
    }
    code.put("};\n}");
    code.put("\nmacro_rules! every_array {\n($visit:ident) => {");
    for message in messages {
        let module = snake(message.name());
        for (owner, field) in
            message.all_structs().flat_map(|each| each.fields.iter().map(move |f| (each, f)))
        {
            if let (true, Some(name)) = (field.array, field.struct_name()) {
                let smallest = super::decode::smallest(message, owner, field);
                code.put(format!("$visit!({module}::{name}, {smallest});"));
            }
        }
    }
    code.put("};\n}");
    code.text
}

fn instance(code: &mut Code, message: &Message, each: &Struct) {
    let range = Range::of(message, each);
    let mut body = Code::default();
    for field in &each.fields {
        let condition = range.condition(field.versions);
        if let Some(condition) = &condition {
            body.put(format!("if {condition} {{"));
        }
        body.put(format!("it.{} = {};", field.ident(), expression(message, each, range, field)));
        if condition.is_some() {
            body.put("}");
        }
    }
    let make = if super::mentions(&body.text, "make") { "make" } else { "_make" };
    let version = super::version_parameter(&body.text);
    let path = format!("tarn_wire::messages::{}", snake(message.name()));
    code.put(format!("\nimpl Instance for {path}::{} {{", each.name));
    code.put(format!("fn instance({make}: &mut Maker, {version}) -> Self {{"));
    if each.fields.is_empty() {
        code.put("Self::default()");
    } else {
        code.put("let mut it = Self::default();");
        code.put(body.text.trim_end());
        code.put("it");
    }
    code.put("}\n}");
}

fn expression(message: &Message, each: &Struct, range: Range, field: &Field) -> String {
    let value = match &field.value {
        Value::Bool => "make.bool()",
        Value::Int8 => "make.i8()",
        Value::Int16 => "make.i16()",
        Value::Uint16 => "make.u16()",
        Value::Int32 => "make.i32()",
        Value::Uint32 => "make.u32()",
        Value::Int64 => "make.i64()",
        Value::Float64 => "make.f64()",
        Value::Uuid => "make.uuid()",
        Value::String => "make.string()",
        Value::Bytes => "make.bytes()",
        Value::Records => "make.bytes().into()",
        Value::Struct(_) => "Instance::instance(make, version)",
    };
    let value = if field.array { format!("make.array(|make| {value})") } else { value.to_owned() };
    if !field.is_option() {
        return value;
    }
    let valid = message.field_range(each, field);
    match (Range { versions: valid, ..range }).otherwise(field.nullable) {
        None => format!("make.maybe(|make| {value})"),
        Some(forbidden) => {
            format!("if {forbidden} {{ Some({value}) }} else {{ make.maybe(|make| {value}) }}")
        }
    }
}
