//! What the topics hold: since when each knows everything, and the event ids in it.

use sink::TopicReader;

use crate::codes::Problem;
use crate::reconcile::ID_HEADER;
use crate::takeover_offset::unreadable;

/// Since when the partition holds everything: `None` if nothing was ever deleted, [`i64::MAX`] if nothing is left to tell.
pub(crate) fn kept_since(
    reader: &mut TopicReader,
    (topic, partition): (&str, i32),
) -> Result<Option<i64>, Problem> {
    let (low, high) = reader.bounds(topic, partition).map_err(unreadable)?;
    if low == 0 {
        return Ok(None);
    }
    if low >= high {
        return Ok(Some(i64::MAX));
    }
    reader
        .read(topic, partition, low, high)
        .map_err(unreadable)?;
    let first = reader.next_record().map_err(unreadable)?;
    Ok(first
        .and_then(|record| record.timestamp_ms)
        .or(Some(i64::MAX)))
}

/// Hands on the event id of each record, from the first that is not older than `from_ms` to the present end.
pub(crate) fn see_partition(
    reader: &mut TopicReader,
    (topic, partition): (&str, i32),
    from_ms: Option<i64>,
    on_id: &mut dyn FnMut(&[u8]),
) -> Result<(), Problem> {
    let (low, high) = reader.bounds(topic, partition).map_err(unreadable)?;
    let from = match from_ms {
        None => low,
        Some(from_ms) => {
            let found = reader.offset_at(topic, partition, from_ms);
            found.map_err(unreadable)?.unwrap_or(high)
        }
    };
    reader
        .read(topic, partition, from, high)
        .map_err(unreadable)?;
    while let Some(record) = reader.next_record().map_err(unreadable)? {
        let mut headers = record.headers.iter();
        let id = headers.find(|(name, _)| name == ID_HEADER);
        if let Some(id) = id.and_then(|(_, value)| value.as_deref()) {
            on_id(id);
        }
    }
    Ok(())
}
