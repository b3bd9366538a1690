//! Patterns in the syntax of RE2.
use shopfloor_hostops::internals::Pattern;

#[test]
fn patterns() {
    for (pattern, yes, no) in [
        ("a*b", "aaab", "aaac"),
        (
            r"(\W|^)[\w.\-]{0,25}@(yahoo|gmail)\.com(\W|$)",
            "account@gmail.com",
            "not email",
        ),
        (
            r"www\.[\w.\-]+\.\bcom\b",
            "www.google.com",
            "www.facebook.org",
        ),
        ("(?i)abc|x{2,3}", "aBC", "x"),
        ("[^a-c]+", "xyz", "xbz"),
        (r"\d+(\.\d+)?", "3.14", "3."),
        ("", "", "a"),
        ("(a|b)*?c", "ababc", "abab"),
        // The whole must match, whichever alternative comes first.
        ("a|ab", "ab", "abc"),
        // Letters of other scripts are no `\w`, and digits no `\d`.
        (r"\w", "e", "é"),
        (r"\W", "é", "e"),
        (r"[^\W]", "e", "é"),
        (r"\d", "7", "٧"),
        (r"\s", "\t", "\u{b}"),
        (r"é\be", "ée", "éé"),
        (r"é\B\W", "éé", "ée"),
        (r"\p{Greek}+", "αβ", "ab"),
        (r"(?i)é", "É", "e"),
        (".", "é", "\n"),
        ("(?s).", "\n", ""),
        // A brace that counts nothing, and what the library's classes would read as operators.
        ("a{b}{,2}{2}", "a{b}{,2}}", "a{b}{,2}"),
        (r"\x{41}\x42", "AB", "A{41}"),
        ("[[&&~~]+", "[&~", "a"),
        ("[!--]+", "!,-", "."),
        ("[]a]+", "a]", "b"),
        ("[^]a]+", "b", "]"),
        ("[[:alpha:]-]+", "a-Z", "1"),
        (r"[\w-]+", "a-1", "!"),
    ] {
        let p = Pattern::new(pattern).unwrap();
        assert!(p.matches(yes), "{pattern} on {yes}");
        assert!(!p.matches(no), "{pattern} on {no}");
    }
    for bad in [
        "(", "a)", "*a", "[a", "a{3,2}", r"\q", "(?<", r"a\", "[b-a]",
    ] {
        let why = Pattern::new(bad).err().expect(bad).0;
        assert!(!why.contains('\n'), "{why}");
    }
}

#[test]
fn what_would_take_too_much_is_refused() {
    for bad in ["(".repeat(5000), "((a{1000}){1000}){1000}".into()] {
        assert!(Pattern::new(&bad).is_err());
    }
    // No text makes a pattern go back.
    let p = Pattern::new("(a*)*b").unwrap();
    assert!(!p.matches(&"a".repeat(100_000)));
}

#[test]
fn the_first_and_longest_match_is_found() {
    for (pattern, text, from, want) in [
        ("[a-z]+", "12 abc de", 0, Some(3..6)),
        ("[a-z]+", "12 abc de", 4, Some(4..6)),
        ("[a-z]+", "12 abc de", 6, Some(7..9)),
        ("[a-z]+", "12", 0, None),
        ("a|ab|abc", "xabcd", 0, Some(1..4)),
        ("bcd|abx|c", "abcd", 0, Some(1..4)),
        ("x*", "axx", 0, Some(0..0)),
        ("x*", "axx", 1, Some(1..3)),
        (r"\bb", "ab b", 1, Some(3..4)),
        ("é+", "aéé", 0, Some(1..5)),
        ("^b", "ab", 1, None),
        ("a", "a", 2, None),
    ] {
        let p = Pattern::new(pattern).unwrap();
        assert_eq!(p.find(text, from), want, "{pattern} in {text} from {from}");
    }
}
