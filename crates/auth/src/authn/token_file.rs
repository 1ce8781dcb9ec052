//! `--token-auth-file`: a CSV file of `token,user,uid[,"group1,group2"]`, read at start.

use std::collections::HashMap;

use meta::{Str, User};
use sha2::{Digest as _, Sha256};

/// Tokens by their hash: looking one up takes the same time however much of it is right.
#[derive(Debug, Default)]
pub struct TokenFile {
    users: HashMap<[u8; 32], User>,
}

impl TokenFile {
    /// Reads the file's text. A line with fewer than three fields or an empty token is an error;
    /// of a token that comes twice the later line counts, as upstream.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut users = HashMap::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let fields = split(line).ok_or_else(|| format!("line {}: bad quotes", at + 1))?;
            let [token, name, uid, rest @ ..] = fields.as_slice() else {
                return Err(format!(
                    "token file must have at least 3 columns (token, user name, user uid), found {}",
                    fields.len()
                ));
            };
            if token.is_empty() {
                return Err(format!("line {}: empty token", at + 1));
            }
            let groups = rest.first().map(String::as_str).unwrap_or_default().split(',');
            let groups = groups.map(str::trim).filter(|group| !group.is_empty());
            let groups = groups.map(Str::new).collect();
            let user = User { name: Str::new(name), uid: Str::new(uid), groups, extra: Vec::new() };
            users.insert(hash(token), user);
        }
        Ok(Self { users })
    }

    pub fn user(&self, token: &str) -> Option<User> {
        self.users.get(&hash(token)).cloned()
    }
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// The fields of a CSV line; `""` stands for a quote inside quotes.
fn split(line: &str) -> Option<Vec<String>> {
    let (mut fields, mut field, mut quoted) = (Vec::new(), String::new(), false);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                field.push('"');
            }
            '"' if quoted => quoted = false,
            '"' if field.is_empty() => quoted = true,
            ',' if !quoted => fields.push(std::mem::take(&mut field)),
            // Blanks around a field are no part of it (upstream trims leading ones).
            ' ' if field.is_empty() && !quoted => {}
            c => field.push(c),
        }
    }
    fields.push(field);
    (!quoted).then_some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_token_a_user_a_uid_and_groups() {
        let file = "t1,alice,1\n# a comment\n\nt2,bob,2,\"system:masters,dev\"\nt3, c ,3,one\n";
        let tokens = TokenFile::parse(file).unwrap();
        assert_eq!(tokens.user("t1").unwrap().name, "alice");
        assert_eq!(tokens.user("t2").unwrap().groups, ["system:masters", "dev"]);
        assert_eq!(tokens.user("t3").unwrap().groups, ["one"]);
        assert!(tokens.user("t4").is_none() && tokens.user("").is_none());
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for text in ["token,user", ",user,uid", "t,u,1,\"open"] {
            assert!(TokenFile::parse(text).is_err(), "{text}");
        }
    }
}
