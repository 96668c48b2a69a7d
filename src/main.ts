#!/usr/bin/env node
import {isatty} from 'node:tty'
import {createCli} from './cli/context.ts'
import {runProgram} from './cli/program.ts'
import {explainError} from './core/errors.ts'

// A reader of our output may stop early, as in `loantape verify | head`: that hides no failure.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit(process.exitCode ?? cli.exitCode)
  const {message, code} = explainError(error)
  process.stderr.write(`loantape: The output could not be written. ${message} [${code}]\n`)
  process.exit(1)
})

// The reader of our log may be gone, or its disk full; the work goes on.
process.stderr.on('error', () => undefined)

// A terminal that closes sends SIGHUP. Node undoes what nohup set, but nothing that nohup started is at a terminal.
const isAtTerminal = isatty(0) || process.stdout.isTTY || process.stderr.isTTY
if (!isAtTerminal) process.on('SIGHUP', () => undefined)

// Files hold addresses, amounts and keys of hashes, so everything created here, by any library, is readable by this user only.
process.umask(0o077)

const cli = createCli({
  env: process.env,
  envFile: '.env',
  stdout: process.stdout,
  stderr: process.stderr,
  onStop(stop) {
    // Only once: a second signal ends the process immediately.
    for (const signal of ['SIGTERM', 'SIGINT']) process.once(signal, () => stop(signal))
    if (isAtTerminal) process.on('SIGHUP', () => stop('SIGHUP'))
  },
})

process.exitCode = await runProgram(cli, process.argv.slice(2))
