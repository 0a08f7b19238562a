//! The table of APIs, and the enum over all metadata records.

use super::{Code, flexible_from};
use crate::schema::{Kind, Message, snake};

/// The constants of `ApiKey`, and `API_TABLE`.
pub(crate) fn api_table(messages: &[Message]) -> String {
    let mut requests: Vec<&Message> = messages.iter().filter(|each| each.kind == Kind::Request).collect();
    requests.sort_by_key(|request| request.key);
    let mut code = Code::default();
    code.put("impl ApiKey {");
    for request in &requests {
        let (name, key) = (request.list_name(), request.key.unwrap_or_default());
        code.put(format!("/// {name}.\npub const {}: ApiKey = ApiKey({key});", snake(name).to_uppercase()));
    }
    code.put("}\n\n/// Every API of the schemas, by key.\npub static API_TABLE: &[ApiInfo] = &[");
    for request in &requests {
        let versions = request.versions();
        code.put("ApiInfo {");
        code.put(format!("key: ApiKey({}),", request.key.unwrap_or_default()));
        code.put(format!("name: \"{}\",", request.list_name()));
        code.put(format!("min: {},\nmax: {},", versions.first, versions.last));
        code.put(format!("max_stable: {},", versions.last - i16::from(request.latest_unstable)));
        code.put(format!("flexible_from: {},", flexible_from(request)));
        let on = |listener: &str| request.listeners.iter().any(|each| each == listener);
        let (broker, controller) = (on("broker"), on("controller"));
        code.put(format!("listeners: Listeners {{ broker: {broker}, controller: {controller} }},"));
        code.put("},");
    }
    code.put("];");
    code.text
}

/// `MetadataRecord` and what needs an arm for each of its kinds.
pub(crate) fn metadata_records(messages: &[&Message]) -> String {
    let records: Vec<&&Message> = messages.iter().filter(|each| each.kind == Kind::Metadata).collect();
    let mut code = Code::default();
    code.put(
        "/// A record of the metadata log.\n#[derive(Clone, Debug, PartialEq)]\npub enum MetadataRecord {",
    );
    for record in &records {
        code.put(format!(
            "/// Key {}.\n{}({}),",
            record.key.unwrap_or_default(),
            variant(record),
            record.name()
        ));
    }
    code.put("/// A record of a kind that this crate does not know, carried as it is.\nUnknown {");
    code.put(
        "/// Its key.\napi_key: i16,\n/// Its version.\nversion: i16,\n/// All that follows.\nbody: Bytes,",
    );
    code.put("},\n}");

    code.put(
        "\nimpl MetadataRecord {\n/// The number of its kind.\npub fn api_key(&self) -> i16 {\nmatch self {",
    );
    for record in &records {
        code.put(format!("MetadataRecord::{}(_) => {},", variant(record), record.key.unwrap_or_default()));
    }
    code.put("MetadataRecord::Unknown { api_key, .. } => *api_key,\n}\n}");

    code.put("\n/// The highest version of its schema; for an unknown record its own.");
    code.put("pub fn latest_version(&self) -> i16 {\nmatch self {");
    for record in &records {
        code.put(format!("MetadataRecord::{}(_) => {}::MAX_VERSION,", variant(record), record.name()));
    }
    code.put("MetadataRecord::Unknown { version, .. } => *version,\n}\n}");

    code.put(
        "\nfn decode_body(api_key: i16, cursor: &mut Cursor, version: i16) -> Result<Self, DecodeError> {",
    );
    code.put("Ok(match api_key {");
    for record in &records {
        let key = record.key.unwrap_or_default();
        code.put(format!("{key} => {}::decode(cursor, version)?.into(),", record.name()));
    }
    code.put(
        "_ => MetadataRecord::Unknown { api_key, version, body: cursor.take(cursor.remaining())? },\n})\n}",
    );

    code.put("\nfn encode_body<S: Sink>(&self, sink: &mut S, version: i16) -> Result<(), EncodeError> {");
    code.put("match self {");
    for record in &records {
        code.put(format!("MetadataRecord::{}(record) => record.encode(sink, version)?,", variant(record)));
    }
    code.put("MetadataRecord::Unknown { body, .. } => sink.put_shared(body),\n}\nOk(())\n}\n}");

    for record in &records {
        code.put(format!("\nimpl From<{}> for MetadataRecord {{", record.name()));
        code.put(format!("fn from(record: {}) -> MetadataRecord {{", record.name()));
        code.put(format!("MetadataRecord::{}(record)\n}}\n}}", variant(record)));
    }
    code.text
}

fn variant(record: &Message) -> &str {
    record.name().trim_end_matches("Record")
}
