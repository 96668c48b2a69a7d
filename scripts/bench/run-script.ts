import {fork} from 'node:child_process'
import {once} from 'node:events'
import {tmpdir} from 'node:os'
import {join} from 'node:path'

/** Runs a script of this folder to its end, with no other settings than `env`, and reads the line it prints. */
export async function runScript(
  name: string,
  args: string[],
  env: Record<string, string> = {},
): Promise<unknown> {
  const child = fork(join(import.meta.dirname, name), args, {
    // As bin/loantape.js has them.
    env: {PATH: process.env.PATH, NODE_COMPILE_CACHE: join(tmpdir(), 'node-compile-cache'), ...env},
    execArgv: ['--max-semi-space-size=8'],
    silent: true,
  })
  let output = ''
  child.stdout?.on('data', (chunk: Buffer) => {
    output += chunk.toString()
  })
  child.stderr?.pipe(process.stderr)
  await once(child, 'close')
  return JSON.parse(output)
}
