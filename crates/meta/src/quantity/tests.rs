use proptest::prelude::*;

use super::*;

/// Text, canonical form, `value`, `milli_value`: as the Go type answers, where it doesn't overflow.
#[test]
fn quantities_are_printed_in_canonical_form() {
    let cases: &[(&str, &str, i64, i64)] = &[
        ("0", "0", 0, 0),
        ("0n", "0", 0, 0),
        ("0Ki", "0", 0, 0),
        ("1", "1", 1, 1000),
        ("1000m", "1", 1, 1000),
        ("0.5", "500m", 1, 500),
        ("1024Mi", "1Gi", 1_073_741_824, 1_073_741_824_000),
        ("1e3", "1e3", 1000, 1_000_000),
        ("1E6", "1E6", 1_000_000, 1_000_000_000),
        ("1E-3", "1E-3", 1, 1),
        ("1.500", "1.500", 2, 1500),
        ("1.5", "1500m", 2, 1500),
        ("+5", "+5", 5, 5000),
        ("01", "01", 1, 1000),
        ("01Ki", "01Ki", 1024, 1_024_000),
        ("1028Ki", "1028Ki", 1_052_672, 1_052_672_000),
        ("8Ki", "8Ki", 8192, 8_192_000),
        ("3.0Ki", "3Ki", 3072, 3_072_000),
        ("100.035Ki", "102435840m", 102_436, 102_435_840),
        ("0.5Mi", "512Ki", 524_288, 524_288_000),
        ("0.05Gi", "53687091200m", 53_687_092, 53_687_091_200),
        ("0.025Ti", "27487790694400m", 27_487_790_695, 27_487_790_694_400),
        ("0.000000000001Ki", "2n", 1, 1),
        ("3.001n", "4n", 1, 1),
        ("1.1E-9", "2e-9", 1, 1),
        ("0.0000000001", "1n", 1, 1),
        ("0.5e-9", "1e-9", 1, 1),
        ("1e-100", "1e-9", 1, 1),
        ("1e-99999999999", "1e-9", 1, 1),
        ("9Ei", "9223372036854775807", i64::MAX, i64::MAX),
        ("9223372036854775807Ki", "9223372036854775807", i64::MAX, i64::MAX),
        ("7Ei", "7Ei", 8_070_450_532_247_928_832, i64::MAX),
        ("1e14", "100e12", 100_000_000_000_000, 100_000_000_000_000_000),
        ("1.2e3", "1200", 1200, 1_200_000),
        ("1e5", "100e3", 100_000, 100_000_000),
        ("5e-1", "500e-3", 1, 500),
        ("100.035k", "100.035k", 100_035, 100_035_000),
        ("50k", "50k", 50_000, 50_000_000),
        ("10000T", "10P", 10_000_000_000_000_000, i64::MAX),
        ("1.", "1.", 1, 1000),
        ("1.G", "1.G", 1_000_000_000, 1_000_000_000_000),
        (".001", "1m", 1, 1),
        (".", "0", 0, 0),
        ("-", "0", 0, 0),
        ("-.", "0", 0, 0),
        ("-1.5Gi", "-1536Mi", -1_610_612_736, -1_610_612_736_000),
        ("-0.5", "-500m", -1, -500),
        ("1E", "1E", 1_000_000_000_000_000_000, i64::MAX),
        ("12E", "12E", i64::MAX, i64::MAX),
        ("1e20", "100e18", i64::MAX, i64::MAX),
        ("12345678901234567890", "12345678901234567890", i64::MAX, i64::MAX),
        ("0.1234567891", "123456790n", 1, 124),
        ("-0.1234567891", "-123456790n", -1, -124),
        ("123456789012345678.5", "123456789012345678500m", 123_456_789_012_345_679, i64::MAX),
        ("1000Ki", "1000Ki", 1_024_000, 1_024_000_000),
        ("1500m", "1500m", 2, 1500),
        ("2048", "2048", 2048, 2_048_000),
        ("1.5Ki", "1536", 1536, 1_536_000),
        ("0.3Ki", "307200m", 308, 307_200),
        ("1000000000", "1G", 1_000_000_000, 1_000_000_000_000),
        ("0.001k", "1", 1, 1000),
        ("1.0", "1", 1, 1000),
        ("1000", "1k", 1000, 1_000_000),
        ("1e+03", "1e+03", 1000, 1_000_000),
        ("1.25Gi", "1280Mi", 1_342_177_280, 1_342_177_280_000),
        // Go drops the suffix that doesn't exist, and the amount with it.
        ("1000000000000000000000k", "1e24", i64::MAX, i64::MAX),
    ];
    for (text, canonical, value, milli) in cases {
        let quantity = Quantity::parse(text).unwrap();
        assert_eq!(quantity.to_string(), *canonical, "{text}");
        assert_eq!(quantity.value(), *value, "{text}");
        assert_eq!(quantity.milli_value(), *milli, "{text}");
    }
}

#[test]
fn invalid_quantities_get_kubernetes_error_messages() {
    let format = "quantities must match the regular expression \
                  '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    let suffix = "unable to parse quantity's suffix";
    let cases = [
        ("", format),
        ("1.1.M", format),
        ("1+1.0M", format),
        ("0.1am", format),
        ("aoeu", format),
        (" 1", format),
        ("1 ", format),
        ("1_000", format),
        ("１", format),
        ("0x10", format),
        ("0.1mi", suffix),
        (".5i", suffix),
        ("1i", suffix),
        ("-3.01e-", suffix),
        ("1e", suffix),
        ("1e9223372036854775808", suffix),
        ("1e10000", suffix),
        (".e-10", "unable to parse numeric part of quantity"),
    ];
    for (text, expected) in cases {
        assert_eq!(Quantity::parse(text).unwrap_err().to_string(), expected, "{text}");
    }
}

/// a, b, a + b, a - b, how a compares to b.
#[test]
fn quantities_add_subtract_and_compare_exactly() {
    let cases = [
        ("1", "1", "2", "0", Ordering::Equal),
        ("100m", "0.9", "1", "-800m", Ordering::Less),
        ("1Gi", "1", "1073741825", "1073741823", Ordering::Greater),
        ("0", "1Ki", "1Ki", "-1Ki", Ordering::Less),
        ("1Ki", "-1Ki", "0", "2Ki", Ordering::Greater),
        (
            "9223372036854775807",
            "1",
            "9223372036854775808",
            "9223372036854775806",
            Ordering::Greater,
        ),
        (
            "1e18",
            "1n",
            "1000000000000000000000000001e-9",
            "999999999999999999999999999e-9",
            Ordering::Greater,
        ),
        ("1M", "1Mi", "2048576", "-48576", Ordering::Less),
        ("12E", "12E", "24E", "0", Ordering::Equal),
        ("1e3", "1", "1001", "999", Ordering::Greater),
        ("5Ei", "5Ei", "10Ei", "0", Ordering::Equal),
        ("-1", "0.5", "-500m", "-1500m", Ordering::Less),
        ("10000T", "100Gi", "10000107374182400", "9999892625817600", Ordering::Greater),
        ("1.0", "1", "2", "0", Ordering::Equal),
    ];
    for (a, b, sum, difference, ordering) in cases {
        let (a, b) = (Quantity::parse(a).unwrap(), Quantity::parse(b).unwrap());
        let (mut added, mut subtracted) = (a.clone(), a.clone());
        added.add(&b);
        subtracted.sub(&b);
        assert_eq!(added.to_string(), sum, "{a} + {b}");
        assert_eq!(subtracted.to_string(), difference, "{a} - {b}");
        assert_eq!(a.cmp(&b), ordering, "{a} <=> {b}");
    }
}

#[test]
fn only_whole_numbers_are_integers() {
    let cases = [
        ("1k", Some(1000)),
        ("1Ki", Some(1024)),
        ("0", Some(0)),
        ("1000m", None),
        ("1.0", None),
        ("12E", None),
        ("3.0Ki", None),
    ];
    for (text, expected) in cases {
        assert_eq!(Quantity::parse(text).unwrap().as_i64(), expected, "{text}");
    }
}

#[test]
fn rounding_and_multiplying() {
    let cases = [("1500m", 0, "2", false), ("-1500m", 0, "-2", false), ("2k", 0, "2k", true)];
    for (text, scale, expected, exact) in cases {
        let mut quantity = Quantity::parse(text).unwrap();
        assert_eq!(quantity.round_up(scale), exact, "{text}");
        assert_eq!(quantity.to_string(), expected, "{text}");
    }
    let cases = [
        ("100m", 5, "500m"),
        ("1E", 1000, "1e21"),
        (
            "9223372036854775807",
            -9_223_372_036_854_775_807,
            "-85070591730234615847396907784232501249",
        ),
    ];
    for (text, factor, expected) in cases {
        let mut quantity = Quantity::parse(text).unwrap();
        quantity.mul(factor);
        assert_eq!(quantity.to_string(), expected, "{text} * {factor}");
    }
}

#[test]
fn float_conversion_matches_go() {
    let cases = [("0.5", 0.5), ("12E", 1.2e19), ("4n", 4e-9), ("-1.5Gi", -1_610_612_736.0)];
    for (text, expected) in cases {
        let float = Quantity::parse(text).unwrap().as_f64();
        assert!((float - expected).abs() <= expected.abs() * 1e-15, "{text}: {float}");
    }
}

proptest! {
    #[test]
    fn any_text_is_a_quantity_or_an_error(text in "[-+]?[0-9.]{0,30}[eEinumkKMGTP]{0,2}[-+]?[0-9]{0,3}") {
        if let Ok(quantity) = Quantity::parse(&text) {
            let again = Quantity::parse(&quantity.to_string()).unwrap();
            prop_assert_eq!(&again, &quantity);
            prop_assert_eq!(again.to_string(), quantity.to_string());
        }
    }

    #[test]
    fn subtracting_undoes_adding(
        a in -1_000_000_000_000_000i64..1_000_000_000_000_000, a_scale in -9..9i32,
        b in any::<i64>(), b_scale in -9..9i32,
    ) {
        let a = Quantity::scaled(a, a_scale, Format::DecimalSi);
        let b = Quantity::scaled(b, b_scale, Format::DecimalSi);
        let mut sum = a.clone();
        sum.add(&b);
        prop_assert_eq!(sum.cmp(&a), b.sign());
        sum.sub(&b);
        prop_assert_eq!(sum, a);
    }
}
