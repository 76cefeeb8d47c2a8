fn main() -> std::process::ExitCode {
    evenkeel::cli::main()
}
