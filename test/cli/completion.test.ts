import {execFileSync} from 'node:child_process'
import {mkdtempSync, rmSync, writeFileSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {afterAll, beforeAll, expect, test} from 'vitest'
import {COMMANDS} from '../../src/cli/program.ts'
import {runCommand} from '../support/command.ts'
import {readFailure} from './outcome.ts'

let dir: string

beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'loantape-completion-'))
})

afterAll(() => rmSync(dir, {recursive: true}))

const printFor = async (shell: string) => (await runCommand(['completion', shell], {})).stdout

test.each([
  ['sy', 'sync'],
  ['period cl', 'close'],
  ['period close 2026-01 --wh', '--why'],
  ['--json sync --ac', '--accept'],
  ['sync period', ''],
  ['export --per', '--period'],
])('bash completes `loantape %s` with "%s"', async (typed, completed) => {
  const script = join(dir, 'script.sh')
  writeFileSync(script, await printFor('bash'))
  const call = `source "$0"; COMP_WORDS=(loantape "$@"); COMP_CWORD=$#; _loantape; echo "\${COMPREPLY[*]}"`
  const printed = execFileSync('bash', ['-c', call, script, ...typed.split(' ')], {encoding: 'utf8'})
  expect(printed.trim()).toBe(completed)
})

test("every shell's script names every command", async () => {
  for (const shell of ['bash', 'zsh', 'fish']) {
    const script = await printFor(shell)
    for (const name of Object.keys(COMMANDS)) expect(script, shell).toMatch(new RegExp(`[' ]${name}[' ]`))
  }
})

test('an unknown shell is answered with the known ones', async () => {
  expect(readFailure(await runCommand(['completion', 'tcsh', '--json'], {}))).toMatchObject({
    code: 'USAGE',
    message: expect.stringContaining("Shell 'tcsh': expected one of bash, zsh, fish"),
  })
})
