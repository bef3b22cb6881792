//! Stage 6 of 9: the ticket of one record on its way, small enough to travel through the broker client.

/// "This position now depends on me": one record on its way. Giving it to [`Tracker::ack`](crate::Tracker::ack) is the only thing that
/// settles it; a ticket that is lost holds the position for ever, which is the safe mistake.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[must_use = "a dropped ticket is never acknowledged and holds the position"]
pub struct Ticket(u64);

impl Ticket {
    /// Only a tracker gives out numbers.
    pub(crate) const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Its number, for messages and for lists of what is awaited.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.0
    }

    /// As librdkafka carries it with a message: the pointer-sized "opaque".
    pub(crate) const fn into_opaque(self) -> usize {
        self.0 as usize
    }

    /// The way back. The caller has it from [`into_opaque`](Self::into_opaque).
    pub(crate) const fn from_opaque(opaque: usize) -> Self {
        Self(opaque as u64)
    }
}

const _: () = assert!(usize::BITS == 64, "a ticket must fit a pointer");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_survives_the_way_through_the_client() {
        for number in [0, 1, u64::MAX] {
            let opaque = Ticket::new(number).into_opaque();
            assert_eq!(Ticket::from_opaque(opaque).number(), number);
        }
    }
}
