//! One server, first come first served, by Lindley's recursion.

use evenkeel_base::Duration;

/// The times from arrival to end, in seconds, of work given as (arrival, service time) in order.
pub(super) fn sojourns_s(work: impl Iterator<Item = (Duration, Duration)>) -> Vec<f64> {
    let mut free_at = 0.0f64;
    work.map(|(arrival, service)| {
        let arrival = arrival.as_secs_f64();
        free_at = free_at.max(arrival) + service.as_secs_f64();
        free_at - arrival
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_while_the_server_is_busy_waits() {
        let ms = Duration::from_millis;
        let work = [(ms(0), ms(10)), (ms(4), ms(10)), (ms(50), ms(10))];
        let seen = sojourns_s(work.into_iter());
        for (seen, expected) in seen.iter().zip([0.010, 0.016, 0.010]) {
            assert!((seen - expected).abs() < 1e-9);
        }
    }
}
