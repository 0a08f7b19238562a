//! The reference page of configuration keys says what the tables say: `docs/configuration.md` is written from
//! them, by this test with `TARN_WRITE_DOCS=1`, and compared with them otherwise.

use std::fmt::Write;
use std::path::Path;

use tarn_image::config::mirror;
use tarn_image::config::server::{ConfigError, Notice, ServerConfig};
use tarn_image::config::table::{self, ConfigKey, Default, Update};
use tarn_image::config::value::Rule;
use tarn_image::effective::{dynamic, topic};

const PAGE: &str = "../../docs/configuration.md";

const HEAD: &str = "\
# Configuration

Written from the tables in `controller/image/src/config/table/`; a test compares. Keys, types and defaults of
Kafka are those of Apache Kafka 4.4 where a line does not say otherwise. *dynamic* keys change while a node runs,
by `kafka-configs.sh`.
";

const NOTHING: &str = "Validated, kept and shown; nothing acts on them.";

/// A node that starts.
const NODE: &str = "process.roles=broker,controller\nnode.id=1\nlog.dirs=/data\n\
    controller.quorum.bootstrap.servers=localhost:9093\ncontroller.listener.names=CONTROLLER\n\
    listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\n";

#[test]
fn the_reference_page_is_what_the_tables_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let page = page();
    if std::env::var_os("TARN_WRITE_DOCS").is_some() {
        std::fs::write(&path, &page).expect("docs/ can be written");
    }
    let written = std::fs::read_to_string(&path).expect("docs/configuration.md is there");
    let differs = written.lines().zip(page.lines()).find(|(written, right)| written != right);
    assert_eq!(differs, None, "write it anew with TARN_WRITE_DOCS=1");
    assert_eq!(written.len(), page.len(), "write it anew with TARN_WRITE_DOCS=1");
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    let (acted_on, idle): (Vec<_>, Vec<_>) =
        table::broker_keys().partition(|key| effect(key) == Effect::Some);
    let (refused, idle): (Vec<_>, Vec<_>) = idle.into_iter().partition(|key| effect(key) == Effect::Refused);
    section(&mut page, "Nodes (`server.properties`)", "Keys that change what Tarn does.", acted_on);
    let (acted_on, kept): (Vec<_>, Vec<_>) =
        table::topic_keys().iter().partition(|key| topic::acts_on(key.name));
    let about = "Keys of Kafka; each is dynamic. With `compact` in `cleanup.policy` records need keys.";
    section(&mut page, "Topics", about, acted_on);
    let about = "Validated, kept, shown and mirrored; nothing acts on them.";
    section(&mut page, "Topics, no effect yet", about, kept);
    let (acted_on, kept): (Vec<_>, Vec<_>) =
        table::own_topic_keys().iter().partition(|key| topic::acts_on_own(key.name));
    section(&mut page, "Topics, Tarn's own", "Shown where they are set.", acted_on);
    section(&mut page, "Topics, Tarn's own, no effect yet", NOTHING, kept);
    let (acted_on, kept): (Vec<_>, Vec<_>) =
        table::mirror_keys().iter().partition(|key| mirror::acts_on(key.name));
    let about = "Given to `tarn mirror create --mirror-config`, with the prefix `mirror.` or without.";
    section(&mut page, "Mirrors", about, acted_on);
    section(&mut page, "Mirrors, no effect yet", NOTHING, kept);
    let about = "Known, and refused where they would ask for a security that Tarn does not have yet.";
    section(&mut page, "Refused for now", about, refused);
    let about =
        "Accepted so that a file of Kafka's can be used; a node names those it finds in one line at start.";
    section(&mut page, "No effect yet", about, idle);
    kept_as_is(&mut page);
    page
}

/// The dynamic keys of a node that does not act on their change.
fn kept_as_is(page: &mut String) {
    page.push_str(
        "\n## Dynamic in Kafka, not here\n\nWhen they are altered, a node keeps and shows them and goes on as before. \
         All other dynamic keys are in force at once.\n\n| key | Kafka | Tarn |\n|---|---|---|\n",
    );
    for kept in dynamic::KEPT {
        let any = |name: &&str| if name.ends_with('.') { format!("`{name}*`") } else { format!("`{name}`") };
        let names: Vec<String> = kept.names.iter().map(any).collect();
        writeln!(page, "| {} | {} | {} |", names.join(", "), kept.kafka, kept.tarn).expect("a text grows");
    }
}

#[derive(PartialEq, Eq)]
enum Effect {
    Some,
    None,
    Refused,
}

/// What a node makes of a key that is set.
fn effect(key: &ConfigKey) -> Effect {
    let value = key.default_text().filter(|text| !text.is_empty()).unwrap_or("1");
    // `log.dir` counts where `log.dirs` is not given.
    let instead = if key.name == "log.dir" { "log.dirs" } else { key.name };
    let lines = NODE.lines().filter(|line| !line.starts_with(&format!("{instead}=")));
    let mut text: Vec<String> = lines.map(str::to_owned).collect();
    let given = NODE.lines().find(|line| line.starts_with(&format!("{}=", key.name)));
    text.push(given.map_or_else(|| format!("{}={value}", key.name), str::to_owned));
    match ServerConfig::parse(&text.join("\n")) {
        Err(ConfigError::Unsupported { .. }) => Effect::Refused,
        Ok((_, notices)) if notices.contains(&Notice::NotActedOn { key: key.name.to_owned() }) => {
            Effect::None
        }
        Ok(_) | Err(_) => Effect::Some,
    }
}

fn section<'a>(page: &mut String, title: &str, about: &str, keys: impl IntoIterator<Item = &'a ConfigKey>) {
    let mut keys: Vec<_> = keys.into_iter().collect();
    keys.sort_by_key(|key| key.name);
    write!(
        page,
        "\n## {title}\n\n{about}\n\n| key | type, range | default | what it is |\n|---|---|---|---|\n"
    )
    .expect("a text grows");
    for key in keys {
        let range = range(key);
        let comma = if range.is_empty() { "" } else { ", " };
        let dynamic = if key.update == Update::ReadOnly { "" } else { " *dynamic*" };
        let kind = key.kind.to_string().to_lowercase();
        writeln!(
            page,
            "| `{}` | {kind}{comma}{range} | {} | {}{dynamic} |",
            key.name,
            default(key),
            key.doc.replace('|', "\\|"),
        )
        .expect("a text grows");
    }
}

fn range(key: &ConfigKey) -> String {
    let one_of = |texts: &[&str]| format!("one of {}", texts.join(", "));
    match key.rule {
        Rule::Any => String::new(),
        Rule::AtLeast(least) => format!("≥ {least}"),
        Rule::Between(least, most) => format!("{least} to {most}"),
        Rule::GzipLevel => "1 to 9, or -1".to_owned(),
        Rule::OneOf(texts) | Rule::OneOfAnyCase(texts) => one_of(texts),
        Rule::ListOf(texts) => format!("of {}", texts.join(", ")),
        Rule::NonEmpty => "not empty".to_owned(),
        Rule::HostCounts => "`host:count` pairs".to_owned(),
        Rule::ThrottledReplicas => "`partition:broker` pairs, or `*`".to_owned(),
    }
}

fn default(key: &ConfigKey) -> String {
    let of_node = key.synonyms.iter().map(|synonym| format!("`{}`", synonym.name)).collect::<Vec<_>>();
    match key.default {
        Default::Required => "must be set".to_owned(),
        Default::Null => "none".to_owned(),
        Default::Is("") => "empty".to_owned(),
        Default::Is(text) if of_node.is_empty() => format!("`{}`", text.replace('|', "\\|")),
        Default::Is(text) => format!("{}; else `{}`", of_node.join(", "), text.replace('|', "\\|")),
    }
}
