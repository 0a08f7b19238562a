//! What a schema says, as the generator holds it.

use std::fmt;

/// Versions from `first` to `last`; none where `first > last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Versions {
    pub(crate) first: i16,
    pub(crate) last: i16,
}

impl Versions {
    pub(crate) const NONE: Versions = Versions { first: 1, last: 0 };
    pub(crate) const ALL: Versions = Versions { first: 0, last: i16::MAX };

    pub(crate) fn and(self, other: Versions) -> Versions {
        let both = Versions { first: self.first.max(other.first), last: self.last.min(other.last) };
        if both.is_empty() { Versions::NONE } else { both }
    }

    /// From the first of either to the last of either.
    pub(crate) fn span(self, other: Versions) -> Versions {
        match (self.is_empty(), other.is_empty()) {
            (true, _) => other,
            (_, true) => self,
            _ => Versions { first: self.first.min(other.first), last: self.last.max(other.last) },
        }
    }

    pub(crate) fn is_empty(self) -> bool {
        self.first > self.last
    }

    pub(crate) fn contains(self, version: i16) -> bool {
        (self.first..=self.last).contains(&version)
    }

    pub(crate) fn covers(self, other: Versions) -> bool {
        self.and(other) == other
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            none if none.is_empty() => f.write_str("none"),
            Versions { first, last: i16::MAX } => write!(f, "{first}+"),
            Versions { first, last } if first == last => write!(f, "{first}"),
            Versions { first, last } => write!(f, "{first}-{last}"),
        }
    }
}

/// A type of one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Bool,
    Int8,
    Int16,
    Uint16,
    Int32,
    Uint32,
    Int64,
    Float64,
    Uuid,
    String,
    Bytes,
    Records,
    Struct(String),
}

impl Value {
    pub(crate) fn named(name: &str) -> Option<Value> {
        Some(match name {
            "bool" => Value::Bool,
            "int8" => Value::Int8,
            "int16" => Value::Int16,
            "uint16" => Value::Uint16,
            "int32" => Value::Int32,
            "uint32" => Value::Uint32,
            "int64" => Value::Int64,
            "float64" => Value::Float64,
            "uuid" => Value::Uuid,
            "string" => Value::String,
            "bytes" => Value::Bytes,
            "records" => Value::Records,
            name if name.starts_with(|first: char| first.is_ascii_uppercase()) => {
                Value::Struct(name.to_owned())
            }
            _ => return None,
        })
    }

    /// The size where it is the same for all values.
    pub(crate) fn fixed_size(&self) -> Option<usize> {
        match self {
            Value::Bool | Value::Int8 => Some(1),
            Value::Int16 | Value::Uint16 => Some(2),
            Value::Int32 | Value::Uint32 => Some(4),
            Value::Int64 | Value::Float64 => Some(8),
            Value::Uuid => Some(16),
            Value::String | Value::Bytes | Value::Records | Value::Struct(_) => None,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) line: usize,
    pub(crate) name: String,
    pub(crate) value: Value,
    pub(crate) array: bool,
    pub(crate) versions: Versions,
    pub(crate) nullable: Versions,
    pub(crate) tag: Option<u32>,
    pub(crate) default: Option<String>,
    pub(crate) ignorable: bool,
    /// `flex=none`: in its old form even in flexible versions.
    pub(crate) never_flexible: bool,
}

impl Field {
    pub(crate) fn is_option(&self) -> bool {
        !self.nullable.is_empty()
    }

    pub(crate) fn defaults_to_null(&self) -> bool {
        self.is_option() && self.default.as_deref() == Some("null")
    }

    /// Its name in Rust.
    pub(crate) fn ident(&self) -> String {
        match snake(&self.name) {
            keyword if matches!(keyword.as_str(), "type" | "match") => format!("r#{keyword}"),
            name => name,
        }
    }

    pub(crate) fn struct_name(&self) -> Option<&str> {
        match &self.value {
            Value::Struct(name) => Some(name),
            _ => None,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Struct {
    pub(crate) line: usize,
    pub(crate) name: String,
    pub(crate) versions: Versions,
    pub(crate) fields: Vec<Field>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Request,
    Response,
    Header,
    Data,
    Metadata,
    CoordinatorKey,
    CoordinatorValue,
}

#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) file: String,
    pub(crate) kind: Kind,
    pub(crate) key: Option<i16>,
    pub(crate) flexible: Versions,
    pub(crate) listeners: Vec<String>,
    pub(crate) latest_unstable: bool,
    /// Its own fields; name, line and valid versions are the message's.
    pub(crate) root: Struct,
    /// The structs that its fields use, in the order of the schema.
    pub(crate) structs: Vec<Struct>,
}

impl Message {
    pub(crate) fn name(&self) -> &str {
        &self.root.name
    }

    pub(crate) fn versions(&self) -> Versions {
        self.root.versions
    }

    /// The name that `generated.list` uses: one for a request and its response.
    pub(crate) fn list_name(&self) -> &str {
        match self.kind {
            Kind::Request => self.name().trim_end_matches("Request"),
            Kind::Response => self.name().trim_end_matches("Response"),
            _ => self.name(),
        }
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Struct> {
        self.structs.iter().find(|each| each.name == name)
    }

    pub(crate) fn all_structs(&self) -> impl Iterator<Item = &Struct> {
        std::iter::once(&self.root).chain(&self.structs)
    }

    /// An error at a line of its file.
    pub(crate) fn error(&self, line: usize, what: impl fmt::Display) -> String {
        format!("schemas/{}:{line}: {what}", self.file)
    }

    /// Whether `from` has a field of the struct `name`, itself or through others.
    pub(crate) fn reaches(&self, from: &Struct, name: &str) -> bool {
        let mut seen = vec![from.name.as_str()];
        let mut ahead = vec![from];
        while let Some(each) = ahead.pop() {
            for used in each.fields.iter().filter_map(Field::struct_name) {
                if used == name {
                    return true;
                }
                if let Some(found) = self.find(used)
                    && !seen.contains(&used)
                {
                    seen.push(used);
                    ahead.push(found);
                }
            }
        }
        false
    }

    /// The versions in which `of` occurs: the span over all fields of its type.
    pub(crate) fn range(&self, of: &Struct) -> Versions {
        if of.name == self.root.name {
            return self.versions();
        }
        let owners = self.all_structs().filter(|owner| owner.name != of.name);
        let uses = owners.flat_map(|owner| owner.fields.iter().map(move |field| (owner, field)));
        let ranges = uses
            .filter(|(_, field)| field.struct_name() == Some(&of.name))
            .map(|(owner, field)| self.field_range(owner, field));
        ranges.reduce(Versions::span).unwrap_or(Versions::NONE).and(of.versions)
    }

    /// The versions in which `field` of `owner` occurs.
    pub(crate) fn field_range(&self, owner: &Struct, field: &Field) -> Versions {
        self.range(owner).and(field.versions)
    }

    /// The least that `of` takes in `version`.
    pub(crate) fn smallest(&self, of: &Struct, version: i16) -> usize {
        let flexible = self.flexible.contains(version);
        let fields = of.fields.iter().filter(|field| field.tag.is_none() && field.versions.contains(version));
        fields.map(|field| self.smallest_field(field, version)).sum::<usize>() + usize::from(flexible)
    }

    fn smallest_field(&self, field: &Field, version: i16) -> usize {
        let flexible = self.flexible.contains(version) && !field.never_flexible;
        if field.array {
            return if flexible { 1 } else { 4 };
        }
        match &field.value {
            Value::String => {
                if flexible {
                    1
                } else {
                    2
                }
            }
            Value::Bytes | Value::Records => {
                if flexible {
                    1
                } else {
                    4
                }
            }
            Value::Struct(_) if field.is_option() => 1,
            value => self.smallest_value(value, flexible, version),
        }
    }

    /// The least that one element of an array takes in `version`.
    pub(crate) fn smallest_value(&self, value: &Value, flexible: bool, version: i16) -> usize {
        match value {
            Value::String => {
                if flexible {
                    1
                } else {
                    2
                }
            }
            Value::Bytes | Value::Records => {
                if flexible {
                    1
                } else {
                    4
                }
            }
            Value::Struct(name) => self.find(name).map_or(0, |found| self.smallest(found, version)),
            fixed => fixed.fixed_size().unwrap_or(0),
        }
    }
}

/// `ErrorCode` as `error_code`, `KRaftVersion` as `kraft_version`, `Enable2Pc` as `enable_2_pc`.
pub(crate) fn snake(name: &str) -> String {
    let chars: Vec<char> = name.replace("KRaft", "Kraft").chars().collect();
    let mut out = String::new();
    for (at, &each) in chars.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| chars[before]);
        let word_ends = before.is_some_and(|before| before.is_ascii_lowercase() || before.is_ascii_digit());
        let next_is_lower = chars.get(at + 1).is_some_and(char::is_ascii_lowercase);
        let begins = each.is_ascii_uppercase() && (word_ends || (before.is_some() && next_is_lower));
        if begins || (each.is_ascii_digit() && before.is_some_and(|before| before.is_ascii_lowercase())) {
            out.push('_');
        }
        out.push(each.to_ascii_lowercase());
    }
    out
}
