#!/usr/bin/env node
import {createCli} from './cli/context.ts'
import {runProgram} from './cli/program.ts'
import {explainError} from './core/errors.ts'

// Whoever reads our output may have enough before its end: `loantape query … | head`.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit(0)
  const {message, code} = explainError(error)
  process.stderr.write(`loantape: The output could not be written. ${message} [${code}]\n`)
  process.exit(1)
})

// Whoever reads our log may be gone, and its disk full: the work goes on.
process.stderr.on('error', () => undefined)

// Addresses, amounts and keys of hashes: what is created is this user's alone, by whichever library.
process.umask(0o077)

const cli = createCli({
  env: process.env,
  envFile: '.env',
  stdout: process.stdout,
  stderr: process.stderr,
  onStop(stop) {
    // Once: a second signal ends the process at once.
    process.once('SIGTERM', () => stop('SIGTERM'))
    process.once('SIGINT', () => stop('SIGINT'))
  },
})

process.exitCode = await runProgram(cli, process.argv.slice(2))
