//! An origin in a process of its own, to be killed: it answers every request with the bytes of its only
//! argument, whatever they are, and says so on standard output.

use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use evenkeel_tests::read_head;

fn main() -> io::Result<()> {
    let answer = std::env::args().nth(1).expect("the bytes of an answer");
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    for stream in listener.incoming() {
        let (stream, answer) = (stream?, answer.clone());
        thread::spawn(move || serve(stream, answer.as_bytes()));
    }
    Ok(())
}

fn serve(mut stream: TcpStream, answer: &[u8]) {
    while read_head(&mut stream).is_some() && stream.write_all(answer).is_ok() {
        println!("answered");
    }
}
