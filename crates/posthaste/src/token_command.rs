//! A password from a command, as cloud providers' sign-ins give it: a token that is good for minutes.
//!
//! It is run at every connect, without a shell. What it prints is the secret and is shown nowhere; nor is what it writes
//! to its standard error, since nobody knows what that holds.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use replication::Secret;
use tokio::io::AsyncReadExt;
use tokio::process::Command;

use crate::codes::{Code, Problem};

/// Runs the command and takes its output, without the line break at its end, as the password.
///
/// # Errors
///
/// [`Code::ServerTokenCommand`], which may heal: the provider's service may be away for a moment.
///
/// # Cancel safety
///
/// Dropping the future kills the command.
pub async fn run(command: &[String]) -> Result<Secret, Problem> {
    run_within(command, TOKEN_COMMAND_TIMEOUT).await
}

async fn run_within(command: &[String], limit: Duration) -> Result<Secret, Problem> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(refused("", "no program is named"));
    };
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| refused(program, format!("cannot be run: {error}")).caused_by(error))?;
    let output = async {
        let mut token = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            // One byte more than allowed tells that there was more.
            stdout
                .take(TOKEN_BYTES_MAX + 1)
                .read_to_end(&mut token)
                .await?;
        }
        if token.len() as u64 > TOKEN_BYTES_MAX {
            return Ok((token, None));
        }
        let status = child.wait().await?;
        std::io::Result::Ok((token, Some(status)))
    };
    let ended = tokio::time::timeout(limit, output).await;
    match ended {
        Err(_) => Err(refused(
            program,
            format!("no end within {} s; it was killed", limit.as_secs_f64()),
        )),
        Ok(Err(error)) => Err(refused(program, error.to_string()).caused_by(error)),
        Ok(Ok((token, status))) => judge(program, &token, status),
    }
}

fn judge(program: &str, token: &[u8], status: Option<ExitStatus>) -> Result<Secret, Problem> {
    let Some(status) = status else {
        return Err(refused(
            program,
            format!("more than {} KiB of output", TOKEN_BYTES_MAX / 1024),
        ));
    };
    if !status.success() {
        return Err(refused(program, status.to_string()));
    }
    let token = token.strip_suffix(b"\n").unwrap_or(token);
    let token = token.strip_suffix(b"\r").unwrap_or(token);
    if token.is_empty() {
        return Err(refused(program, "no output"));
    }
    if token.contains(&0) {
        return Err(refused(program, "a zero byte in its output"));
    }
    Ok(Secret::new(token))
}

/// The arguments are not shown: some pass secrets that way.
fn refused(program: &str, found: impl Into<String>) -> Problem {
    Problem::new(
        Code::ServerTokenCommand,
        format!("source.token_command {program:?}"),
    )
    .found(found)
    .needed("exit status 0, and the password alone on standard output")
    .fix("run it by hand as this process's user: what it says on standard error is not shown here")
}

/// How long the command may take.
const TOKEN_COMMAND_TIMEOUT: Duration = Duration::from_secs(20);

/// How much it may print. Tokens of today's providers have 1 to 2 KiB.
const TOKEN_BYTES_MAX: u64 = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    async fn sh(script: &str, limit_ms: u64) -> Result<Secret, Problem> {
        let command = ["/bin/sh", "-c", script].map(str::to_owned);
        run_within(&command, Duration::from_millis(limit_ms)).await
    }

    #[tokio::test]
    async fn what_it_prints_is_the_password() {
        for (script, password) in [
            ("echo token", "token"),
            ("printf 'a b\\r\\n'", "a b"),
            ("printf ' x\\n\\n'", " x\n"),
        ] {
            let secret = sh(script, 60_000).await.expect("a password");
            assert_eq!(secret, Secret::new(password), "{script}");
        }
    }

    #[tokio::test]
    async fn what_is_no_password_is_refused_without_showing_it() {
        for (script, found) in [
            ("echo s3cret; exit 3", "exit status: 3"),
            ("true", "no output"),
            ("echo", "no output"),
            ("printf 's3cret\\0'", "a zero byte"),
            ("yes s3cret", "more than 64 KiB"),
        ] {
            let problem = sh(script, 60_000).await.expect_err("refused");
            let text = format!("{problem} {problem:?}");
            assert_eq!(problem.code, Code::ServerTokenCommand);
            assert!(text.contains(found), "{text}");
            assert!(!text.contains("s3cret"), "{text}");
        }
        let missing = ["/no/such/program".to_owned()];
        let problem = run(&missing).await.expect_err("refused");
        assert!(problem.to_string().contains("cannot be run"), "{problem}");
    }

    #[tokio::test]
    async fn a_command_that_hangs_is_ended() {
        let problem = sh("echo s3cret; exec sleep 600", 100)
            .await
            .expect_err("refused");
        assert!(problem.to_string().contains("it was killed"), "{problem}");
    }
}
