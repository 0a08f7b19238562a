//! The patterns by which a mirror discovers topics, as its commands change them: `topics.include` says which
//! are begun with, `topics.exclude` which never are.
//!
//! Invariants:
//! * a pattern that a command adds to one list is in the other no longer;
//! * a list changes only as a command says: what was set by other means stays, in its order.

use tarn_image::config::mirror::{InvalidMirror, Patterns};
use tarn_image::config::table;
use tarn_image::config::value::elements;
use tarn_image::mirrors::MirrorImage;
use tarn_image::topic_name;
use tarn_wire::{ErrorCode, MetadataRecord, Str};

use super::ApiError;
use super::mirror_bindings::mirror_record;

/// What is discovered.
pub(super) const INCLUDE: &str = "topics.include";
/// What is not, even so.
pub(super) const EXCLUDE: &str = "topics.exclude";

/// Patterns that mean every topic.
const EVERYTHING: [&str; 2] = [".*", ".+"];

/// Both lists of a mirror.
pub(super) struct Lists {
    include: List,
    exclude: List,
}

impl Lists {
    /// Those in force.
    pub(super) fn of(mirror: &MirrorImage<'_>) -> Lists {
        Lists { include: List::of(mirror, INCLUDE), exclude: List::of(mirror, EXCLUDE) }
    }

    /// What `start` makes of them: each pattern is in the list it was given for. One that was given for both
    /// is excluded.
    pub(super) fn started(&mut self, include: &[Str], exclude: &[Str]) {
        for pattern in include {
            self.exclude.remove(pattern);
            self.include.add(pattern);
        }
        for pattern in exclude {
            self.include.remove(pattern);
            self.exclude.add(pattern);
        }
    }

    /// What `stop` makes of them, so that no more topics of these patterns and names are begun with. What is
    /// included as it stands, and names that a pattern means, are so no longer. Only where other patterns are
    /// left, which may mean the same topics, the pattern is excluded: who stops everything, and starts it again
    /// when the source is back, shall find nothing in the way. One that means none of the mirror's topics, `bound`,
    /// is a slip and changes nothing.
    ///
    /// # Errors
    /// INVALID_REQUEST where a pattern is no regular expression.
    pub(super) fn stopped<'a>(
        &mut self,
        patterns: &[Str],
        names: impl IntoIterator<Item = &'a str>,
        bound: &[&str],
    ) -> Result<(), ApiError> {
        let (as_they_stand, others): (Vec<&Str>, Vec<&Str>) =
            patterns.iter().partition(|pattern| self.include.has(pattern));
        as_they_stand.into_iter().for_each(|pattern| self.include.remove(pattern));
        for pattern in others {
            let meant = parse([pattern.trim()])?;
            if !bound.iter().any(|topic| meant.matches(topic)) {
                continue;
            }
            let is_everything = EVERYTHING.contains(&pattern.trim());
            self.include.retain(|kept| !(is_everything || topic_name::is_legal(kept) && meant.matches(kept)));
            if self.include.elements().iter().any(|kept| !topic_name::is_legal(kept)) {
                self.exclude.add(pattern);
            }
        }
        names.into_iter().for_each(|name| self.include.remove(name));
        Ok(())
    }

    /// What discovery begins with, as far as [`Lists::exclusion`] does not match it.
    ///
    /// # Errors
    /// INVALID_REQUEST where that is no list of regular expressions.
    pub(super) fn inclusion(&self) -> Result<Patterns, ApiError> {
        parse(self.include.elements())
    }

    /// What is never begun with.
    ///
    /// # Errors
    /// INVALID_REQUEST where one of the lists is not one of regular expressions.
    pub(super) fn exclusion(&self) -> Result<Patterns, ApiError> {
        parse(self.include.elements())?;
        parse(self.exclude.elements())
    }

    /// The records that bring the lists of `mirror` to this; none where nothing changed.
    ///
    /// # Errors
    /// INVALID_REQUEST where a list has become longer than a value may be.
    pub(super) fn records(&self, mirror: &str) -> Result<Vec<MetadataRecord>, ApiError> {
        let changed = [&self.include, &self.exclude].into_iter().filter(|list| list.now != list.before);
        changed.map(|list| Ok(mirror_record(mirror, list.key, Some(list.checked()?)))).collect()
    }
}

/// Reads the patterns of a request. In a list a comma keeps patterns apart, so none may have one.
///
/// # Errors
/// INVALID_REQUEST, naming the first that is no regular expression, is empty or has a comma.
pub(super) fn parse_given(given: &[Str]) -> Result<Patterns, ApiError> {
    if let Some(pattern) = given.iter().find(|pattern| pattern.contains(',') || pattern.trim().is_empty()) {
        let why = format!("'{pattern}' is not a pattern: one is not empty and has no comma.");
        return Err(ApiError::new(ErrorCode::INVALID_REQUEST, why));
    }
    parse(given.iter().map(|pattern| pattern.trim()))
}

fn parse<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<Patterns, ApiError> {
    Patterns::parse(patterns).map_err(|InvalidMirror(why)| ApiError::new(ErrorCode::INVALID_REQUEST, why))
}

/// One list, as it was and as it is to be.
struct List {
    key: &'static str,
    before: String,
    now: String,
}

impl List {
    fn of(mirror: &MirrorImage<'_>, key: &'static str) -> List {
        let before = match mirror.configs.get(key) {
            Some(value) => value.to_string(),
            None => table::mirror_key(key).and_then(|key| key.default_text()).unwrap_or("").to_owned(),
        };
        List { key, now: before.clone(), before }
    }

    fn checked(&self) -> Result<&str, ApiError> {
        match table::mirror_key(self.key).map(|key| key.canonical(&self.now)) {
            Some(Err(refusal)) => Err(ApiError::new(ErrorCode::INVALID_REQUEST, refusal.of(self.key))),
            _ => Ok(&self.now),
        }
    }

    fn elements(&self) -> Vec<&str> {
        elements(&self.now)
    }

    fn has(&self, pattern: &str) -> bool {
        self.elements().contains(&pattern.trim())
    }

    fn add(&mut self, pattern: &str) {
        if !self.has(pattern) {
            let mut list = self.elements();
            list.push(pattern.trim());
            self.now = list.join(",");
        }
    }

    fn remove(&mut self, pattern: &str) {
        self.retain(|kept| kept != pattern.trim());
    }

    fn retain(&mut self, keeps: impl Fn(&str) -> bool) {
        if !self.elements().into_iter().all(&keeps) {
            let mut list = self.elements();
            list.retain(|kept| keeps(kept));
            self.now = list.join(",");
        }
    }
}
