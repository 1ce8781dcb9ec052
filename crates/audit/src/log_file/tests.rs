use std::io::Read as _;

use flate2::read::GzDecoder;

use super::*;

const MEGABYTES: Rotation =
    Rotation { max_bytes: 1 << 20, max_age: Duration::ZERO, max_backups: 0, compress: false };

fn lines(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| format!("{text}\n").into_bytes()).collect()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_torn_last_line_is_ended_at_start() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new/audit.log");
    let first = LogFile::open(&path, MEGABYTES).unwrap();
    first.write(&lines(&["one", "two"])).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    // The process is killed in the middle of a write.
    fs::write(&path, "one\ntwo\n{\"to").unwrap();
    let second = LogFile::open(&path, MEGABYTES).unwrap();
    second.write(&lines(&["three"])).unwrap();
    second.write(&lines(&["four"])).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntwo\n{\"to\nthree\nfour\n");
}

#[test]
fn a_full_file_is_moved_aside_and_no_line_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let log = LogFile::open(&path, Rotation { max_bytes: 12, ..MEGABYTES }).unwrap();
    log.write(&lines(&["aaaa", "bbbb", "cccc", "this is longer than a file", "dddd"])).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "dddd\n");
    let mut all: Vec<String> = names(directory.path());
    assert_eq!(all.pop().unwrap(), "audit.log");
    let shape: Vec<String> =
        all.iter().map(|name| name.replace(|c: char| c.is_ascii_digit(), "0")).collect();
    assert_eq!(shape, ["audit-0000-00-00T00-00-00.000.log"; 3]);
    let read = |name: &String| fs::read_to_string(directory.path().join(name)).unwrap();
    assert_eq!(
        all.iter().map(read).collect::<Vec<_>>(),
        ["aaaa\nbbbb\n", "cccc\n", "this is longer than a file\n"]
    );
}

#[test]
fn zero_never_rotates() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit");
    let log = LogFile::open(&path, Rotation { max_bytes: 0, ..MEGABYTES }).unwrap();
    log.write(&vec![vec![b'\n'; 1000]; 3000]).unwrap();
    assert_eq!(names(directory.path()), ["audit"]);
}

#[test]
fn backups_are_deleted_by_number_and_age_and_compressed() {
    let day = |n: u32| format!("audit-2026-01-{n:02}T00-00-00.000.log");
    let now = SystemTime::UNIX_EPOCH + Duration::from_hours(491_112); // 2026-01-10
    let age = Duration::from_hours(72);
    let cases: [(Rotation, &[&str]); 3] = [
        (Rotation { max_backups: 2, ..MEGABYTES }, &["audit-08", "audit-09"]),
        (Rotation { max_age: age, ..MEGABYTES }, &["audit-07", "audit-08", "audit-09"]),
        (
            Rotation { max_backups: 3, max_age: age, compress: true, ..MEGABYTES },
            &["audit-07gz", "audit-08gz", "audit-09gz"],
        ),
    ];
    for (rotation, expected) in cases {
        let directory = tempfile::tempdir().unwrap();
        let others = ["audit.log", "audit-x.log", "audit-2026-01-01T00-00-00.000.txt"];
        for name in (5..10).map(day).chain(others.map(ToOwned::to_owned)) {
            fs::write(directory.path().join(name), "content\n").unwrap();
        }
        let compress = rotation.compress;
        Backups::new(&directory.path().join("audit.log"), rotation).clean(now).unwrap();
        let mut left = names(directory.path());
        left.retain(|name| !others.contains(&name.as_str()));
        let left: Vec<String> = left
            .iter()
            .map(|name| {
                name.replace("2026-01-", "").replace("T00-00-00.000.log", "").replace('.', "")
            })
            .collect();
        assert_eq!(left, expected);
        assert_eq!(names(directory.path()).len(), left.len() + others.len());
        if compress {
            let file = File::open(directory.path().join(day(9) + ".gz")).unwrap();
            let mut text = String::new();
            GzDecoder::new(file).read_to_string(&mut text).unwrap();
            assert_eq!(text, "content\n");
        }
    }
}

#[test]
fn a_missing_directory_is_an_error_and_the_file_comes_back_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("logs/audit.log");
    let log = LogFile::open(&path, Rotation { max_bytes: 8, ..MEGABYTES }).unwrap();
    log.write(&lines(&["aaaa"])).unwrap();
    fs::remove_dir_all(directory.path().join("logs")).unwrap();
    assert!(log.write(&lines(&["bbbb"])).is_err(), "the file cannot be moved aside");
    fs::create_dir(directory.path().join("logs")).unwrap();
    log.write(&lines(&["cccc"])).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "cccc\n");
}
