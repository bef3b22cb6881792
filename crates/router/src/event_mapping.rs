//! Stage 5 of 9, the Event Router's mapping: which columns it asks for, and what for.

use super::{EventRouterConfig, MissingBehavior, PlacementPlace};
use crate::error::ConnectConfigError;

/// The number of a column that is asked for. Two uses of one column share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ColumnSlot(pub(crate) usize);

/// The columns, by what they are for.
#[derive(Debug)]
pub(crate) struct EventMapping {
    /// By slot.
    pub(crate) names: Vec<String>,
    /// By slot: whether an event may not be without it.
    required: Vec<bool>,
    pub(crate) id: ColumnSlot,
    pub(crate) key: ColumnSlot,
    pub(crate) payload: ColumnSlot,
    pub(crate) route: ColumnSlot,
    pub(crate) timestamp: Option<ColumnSlot>,
    pub(crate) version: Option<ColumnSlot>,
    pub(crate) additional: Vec<Additional>,
    pub(crate) has_envelope: bool,
}

/// An additional column.
#[derive(Debug)]
pub(crate) struct Additional {
    pub(crate) slot: ColumnSlot,
    pub(crate) place: PlacementPlace,
    pub(crate) name: String,
}

impl EventMapping {
    pub(crate) fn new(config: &EventRouterConfig) -> Result<Self, ConnectConfigError> {
        let mut columns = Columns::default();
        let id = columns.slot("table_field_event_id", &config.table_field_event_id, true)?;
        let key = columns.slot("table_field_event_key", &config.table_field_event_key, true)?;
        let payload = columns.slot(
            "table_field_event_payload",
            &config.table_field_event_payload,
            true,
        )?;
        let route = columns.slot("route_by_field", &config.route_by_field, true)?;
        let mut optional_slot = |option: &str, name: &Option<String>| {
            name.as_ref()
                .map(|name| columns.slot(option, name, true))
                .transpose()
        };
        let timestamp = optional_slot(
            "table_field_event_timestamp",
            &config.table_field_event_timestamp,
        )?;
        let version = optional_slot(
            "table_field_event_schema_version",
            &config.table_field_event_schema_version,
        )?;
        let is_required = config.table_field_additional_missing == MissingBehavior::Error;
        let mut additional = Vec::new();
        for placement in &config.table_fields_additional_placement {
            const OPTION: &str = "table_fields_additional_placement";
            additional.push(Additional {
                slot: columns.slot(OPTION, &placement.column, is_required)?,
                place: placement.place,
                name: checked_name(OPTION, placement.name())?.to_owned(),
            });
        }
        let has_envelope = check_envelope(&additional)?;
        Ok(Self {
            names: columns.names,
            required: columns.required,
            id,
            key,
            payload,
            route,
            timestamp,
            // Without an envelope nobody asks for the version, not even of a table that lacks it.
            version: version.filter(|_| has_envelope),
            additional,
            has_envelope,
        })
    }

    pub(crate) fn is_required(&self, slot: ColumnSlot) -> bool {
        self.required.get(slot.0) == Some(&true)
    }

    pub(crate) fn name(&self, slot: ColumnSlot) -> &str {
        self.names.get(slot.0).map_or("", String::as_str)
    }
}

#[derive(Default)]
struct Columns {
    names: Vec<String>,
    required: Vec<bool>,
}

impl Columns {
    fn slot(
        &mut self,
        option: &str,
        name: &str,
        required: bool,
    ) -> Result<ColumnSlot, ConnectConfigError> {
        let name = checked_name(option, name)?;
        let at = match self.names.iter().position(|known| known == name) {
            Some(at) => at,
            None => {
                self.names.push(name.to_owned());
                self.required.push(false);
                self.names.len() - 1
            }
        };
        if let Some(known) = self.required.get_mut(at) {
            *known |= required;
        }
        Ok(ColumnSlot(at))
    }
}

/// A NUL can stand in no column's name, and would end a header's name early in the broker client.
pub(crate) fn checked_name<'a>(option: &str, name: &'a str) -> Result<&'a str, ConnectConfigError> {
    if name.is_empty() || name.contains('\0') {
        return Err(ConnectConfigError::Name {
            key: option.to_owned(),
            name: name.to_owned(),
        });
    }
    Ok(name)
}

/// Whether there is an envelope; its fields' names cannot repeat.
fn check_envelope(additional: &[Additional]) -> Result<bool, ConnectConfigError> {
    let mut names = vec!["payload"];
    for field in additional
        .iter()
        .filter(|field| field.place == PlacementPlace::Envelope)
    {
        if names.contains(&&*field.name) {
            return Err(ConnectConfigError::EnvelopeField {
                name: field.name.clone(),
            });
        }
        names.push(&field.name);
    }
    Ok(names.len() > 1)
}
