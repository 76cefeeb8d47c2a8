//! A mean over seeds and how far it can be trusted.

/// A mean with half the width of its 95 % interval (Student's t over independent seeds).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    pub value: f64,
    /// Infinite for a single value: one seed says nothing of its spread.
    pub half_width: f64,
    /// Values that the mean is over; the infinite ones are not in it.
    pub count: u32,
    /// Values that were infinite ("never").
    pub never: u32,
}

impl Mean {
    /// `None` when no value is finite.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Mean> {
        let (mut finite, mut never) = (Vec::new(), 0);
        for value in values {
            if value.is_finite() {
                finite.push(value);
            } else {
                never += 1;
            }
        }
        if finite.is_empty() {
            return None;
        }
        let count = finite.len() as f64;
        let value = finite.iter().sum::<f64>() / count;
        let square: f64 = finite.iter().map(|v| (v - value) * (v - value)).sum();
        let half_width = if finite.len() < 2 {
            f64::INFINITY
        } else {
            t_95(finite.len() - 1) * libm::sqrt(square / (count - 1.0) / count)
        };
        Some(Mean {
            value,
            half_width,
            count: finite.len() as u32,
            never,
        })
    }
}

/// The 97.5 % quantile of Student's t.
fn t_95(degrees: usize) -> f64 {
    const FEW: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045, 2.042,
    ];
    match degrees {
        0 => f64::INFINITY,
        few if few <= FEW.len() => FEW[few - 1],
        // The first term of the expansion about the normal quantile: within 0.001 from here on.
        many => 1.960 + 2.372 / many as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_students() {
        let mean = Mean::of([1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert_eq!((mean.value, mean.count, mean.never), (3.0, 5, 0));
        assert!((mean.half_width - 2.776 * (2.5f64 / 5.0).sqrt()).abs() < 1e-9);
        assert!((t_95(60) - 2.000).abs() < 0.002 && (t_95(31) - 2.040).abs() < 0.005);
    }

    #[test]
    fn never_is_counted_and_not_averaged() {
        let mean = Mean::of([1.0, f64::INFINITY, 3.0]).unwrap();
        assert_eq!((mean.value, mean.count, mean.never), (2.0, 2, 1));
        assert_eq!(Mean::of([f64::INFINITY]), None);
        assert!(Mean::of([1.0]).unwrap().half_width.is_infinite());
    }
}
