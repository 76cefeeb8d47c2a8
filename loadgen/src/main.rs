fn main() -> std::process::ExitCode {
    loadgen::cli::main()
}
