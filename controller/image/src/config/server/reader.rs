//! Reading keys of the table out of a file, remembering which were asked for.

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::ConfigError;
use crate::config::table::{self, ConfigKey, Default};
use crate::config::value::{Refusal, elements};
use crate::effective::StaticConfigs;
use crate::effective::dynamic::acted_on_at_once;

/// A file being read. Every value that it gives has passed its key's rule.
pub(super) struct Reader<'a> {
    given: &'a StaticConfigs,
    used: RefCell<BTreeSet<&'static str>>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(given: &'a StaticConfigs) -> Reader<'a> {
        Reader { given, used: RefCell::default() }
    }

    /// True where the file sets `name`.
    pub(super) fn is_given(&self, name: &'static str) -> bool {
        self.given.contains_key(name)
    }

    /// The value, or the default; `None` where there is neither.
    pub(super) fn optional(&self, name: &'static str) -> Result<Option<String>, ConfigError> {
        self.used.borrow_mut().insert(name);
        let key = known(name);
        match self.given.get(name) {
            Some(text) => {
                key.canonical(text).map(Some).map_err(|refusal| ConfigError::Invalid(refusal.of(name)))
            }
            None => match key.default {
                Default::Is(text) => Ok(Some(text.to_owned())),
                Default::Null | Default::Required => Ok(None),
            },
        }
    }

    /// The value, or the default, or nothing.
    pub(super) fn text(&self, name: &'static str) -> Result<String, ConfigError> {
        Ok(self.optional(name)?.unwrap_or_default())
    }

    /// The elements of a list.
    pub(super) fn list(&self, name: &'static str) -> Result<Vec<String>, ConfigError> {
        Ok(elements(&self.text(name)?).into_iter().map(str::to_owned).collect())
    }

    /// A boolean.
    pub(super) fn is_true(&self, name: &'static str) -> Result<bool, ConfigError> {
        Ok(self.text(name)? == "true")
    }

    /// A number.
    pub(super) fn number<N: TryFrom<i64>>(&self, name: &'static str) -> Result<N, ConfigError> {
        let text = self.text(name)?;
        let number: i64 = text.parse().map_err(|_| self.refuse(name, "a number is expected"))?;
        N::try_from(number).map_err(|_| self.refuse(name, "the number is too large"))
    }

    /// The refusal of what the file says for `name`.
    pub(super) fn refuse(&self, name: &'static str, why: &str) -> ConfigError {
        let shown = self.given.get(name).cloned().unwrap_or_default();
        ConfigError::Invalid(Refusal { shown, why: why.to_owned() }.of(name))
    }

    /// The keys that have an effect: those asked for, and those that are looked up later.
    pub(super) fn used(&self) -> BTreeSet<&'static str> {
        self.used.borrow().iter().copied().chain(acted_on_at_once()).collect()
    }

    /// That every key of the file has a value of its type, asked for or not.
    pub(super) fn check_all(&self) -> Result<(), ConfigError> {
        for (name, value) in self.given {
            if let Some(key) = table::broker_key(name) {
                key.canonical(value).map_err(|refusal| ConfigError::Invalid(refusal.of(name)))?;
            }
        }
        Ok(())
    }
}

fn known(name: &'static str) -> &'static ConfigKey {
    table::broker_key(name).expect("the keys read at start are in the table")
}
