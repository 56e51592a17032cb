//! How long ago, as kubectl says it: the two units that matter, and only one when the second no longer does. Pure.

use jiff::Timestamp;

/// The time from `then` to `now`; `<unknown>` without a `then`. A time to come is `0s`.
pub fn age(then: Option<Timestamp>, now: Timestamp) -> String {
    match then {
        Some(then) => human(now.duration_since(then).as_secs()),
        None => "<unknown>".to_owned(),
    }
}

fn human(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |first: i64, unit: char, rest: i64, small: char| match rest {
        0 => format!("{first}{unit}"),
        rest => format!("{first}{unit}{rest}{small}"),
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, 'm', seconds % 60, 's'),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, 'h', minutes % 60, 'm'),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, 'd', hours % 24, 'h'),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => two(days / 365, 'y', days % 365, 'd'),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_as_kubectls() {
        for (seconds, text) in [
            (-5, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (599, "9m59s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (11_000, "3h3m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (172_800, "2d"),
            (176_400, "2d1h"),
            (691_200, "8d"),
            (63_072_000, "2y"),
            (63_158_400, "2y1d"),
        ] {
            assert_eq!(human(seconds), text, "{seconds}");
        }
        assert_eq!(age(None, Timestamp::UNIX_EPOCH), "<unknown>");
    }
}
