#!/usr/bin/env node
import {createCli} from './cli/context.ts'
import {runProgram} from './cli/program.ts'

// Whoever reads our output may have enough before its end: `loantape query … | head`.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit(0)
  throw error
})

// Whoever reads our log may be gone, such as a server that was killed: the work goes on.
process.stderr.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error
})

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
