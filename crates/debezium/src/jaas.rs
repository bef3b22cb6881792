//! `sasl.jaas.config`: `CLASS required name="value" …;`, as Java's login modules have it.

use std::collections::BTreeMap;

/// One login module with its options. Has no `Debug`: they are secrets.
pub(crate) struct Module {
    pub(crate) class: String,
    pub(crate) options: BTreeMap<String, String>,
}

/// Reads the one module of a configuration; on failure, what is wrong, without any of its values.
pub(crate) fn parse(text: &str) -> Result<Module, &'static str> {
    let mut tokens = tokens(text)?.into_iter();
    let class = tokens.next().ok_or("is empty")?;
    let flag = tokens.next().ok_or("has no control flag after the class")?;
    if !["required", "requisite", "sufficient", "optional"]
        .contains(&flag.to_ascii_lowercase().as_str())
    {
        return Err("has no control flag after the class");
    }
    let mut options = BTreeMap::new();
    loop {
        let name = tokens.next().ok_or("does not end with a semicolon")?;
        if name == ";" {
            break;
        }
        if tokens.next().as_deref() != Some("=") {
            return Err("has an option without `=`");
        }
        let value = tokens.next().filter(|value| value != ";" && value != "=");
        options.insert(name, value.ok_or("has an option without a value")?);
    }
    match tokens.next() {
        Some(_) => Err("has more than one login module"),
        None => Ok(Module { class, options }),
    }
}

/// Words, quoted texts, `=` and `;`, as Java's `StreamTokenizer` would cut them.
fn tokens(text: &str) -> Result<Vec<String>, &'static str> {
    let mut tokens = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            c if c.is_whitespace() => {}
            ';' | '=' => tokens.push(c.to_string()),
            '"' | '\'' => {
                let mut token = String::new();
                loop {
                    match chars.next().ok_or("has a quote that does not close")? {
                        end if end == c => break,
                        '\\' => token.extend(chars.next().map(|escaped| match escaped {
                            'n' => '\n',
                            't' => '\t',
                            'r' => '\r',
                            other => other,
                        })),
                        other => token.push(other),
                    }
                }
                tokens.push(token);
            }
            c => {
                let mut token = c.to_string();
                while let Some(next) =
                    chars.next_if(|next| !next.is_whitespace() && !";=\"'".contains(*next))
                {
                    token.push(next);
                }
                tokens.push(token);
            }
        }
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_read_with_its_quotes() {
        let module =
            parse("a.b.PlainLoginModule required\n username=\"u\" password=\"p\\\"; =x\" z=y;")
                .ok()
                .unwrap();
        assert_eq!(module.class, "a.b.PlainLoginModule");
        let options: Vec<_> = module
            .options
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        assert_eq!(
            options,
            [("password", "p\"; =x"), ("username", "u"), ("z", "y")]
        );
    }

    #[test]
    fn mistakes_are_named_without_values() {
        for (text, expected) in [
            ("", "is empty"),
            ("x", "no control flag"),
            ("x required", "semicolon"),
            ("x required a", "without `=`"),
            ("x required a=;", "without a value"),
            ("x required a=\"b;", "quote"),
            ("x required; y required;", "more than one"),
        ] {
            let error = parse(text).err().unwrap();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
