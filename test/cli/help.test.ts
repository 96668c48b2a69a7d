import {execFileSync} from 'node:child_process'
import type {Command} from 'commander'
import {expect, test} from 'vitest'
import {createCli} from '../../src/cli/context.ts'
import {COMMANDS, createProgram} from '../../src/cli/program.ts'
import {CATALOGUE} from '../../src/core/errors.ts'
import {runCommand} from '../support/command.ts'
import {MAIN} from '../support/lab.ts'
import {expectRefused, readJson} from './outcome.ts'

test('the help of every command lists --data, --json and an example that parses', async () => {
  const quiet = {write: () => undefined}
  const program = createProgram(createCli({env: {}, stdout: quiet, stderr: quiet, onStop: () => undefined}))
  const find = (above: Command, word: string) => above.commands.find((one) => one.name() === word)!
  for (const [name, {example = ''}] of Object.entries(COMMANDS)) {
    const command = name.split(' ').reduce(find, program)
    if (example === '' && command.commands.length > 0) continue
    const printed: string[] = []
    // The command does nothing, so examples are only parsed.
    command.action(() => undefined).configureOutput({writeOut: (text) => void printed.push(text)})
    command.outputHelp()
    const help = printed.join('')
    expect(help, name).toMatch(/--data <dir> .*--json /s)
    expect(help).toContain(`\nExample:\n  loantape ${example}\n`)
    expect(example).toMatch(new RegExp(`^${name}( |$)`))
    const args = [...example.matchAll(/"([^"]*)"|(\S+)/g)].map(([, quoted, bare]) => quoted ?? bare ?? '')
    await expect(program.parseAsync(args, {from: 'user'})).resolves.toBeDefined()
  }
})

test('bash completes commands and options, zsh loads the same script, and fish says what each is about', async () => {
  const print = async (...args: string[]) => (await runCommand(['completion', ...args], {})).stdout
  const script = await print('bash')
  for (const [typed, completed] of Object.entries({
    sy: ['sync'],
    'period cl': ['close'],
    '--json sync --ac': ['--accept'],
    'sync period': [],
    'export --per': ['--period'],
  })) {
    const [begun = '', ...before] = typed.split(' ').toReversed()
    const words = (await print('bash', '--', 'loantape', ...before.toReversed())).match(/^\S+/gm) ?? []
    expect(
      words.filter((word) => word.startsWith(begun)),
      typed,
    ).toEqual(completed)
  }
  const call = `COMP_WORDS=(loantape "$@"); COMP_CWORD=$#; _loantape loantape; echo "\${COMPREPLY[*]}"`
  const bash = ['-c', `loantape() { '${process.execPath}' '${MAIN}' "$@"; }\n${script}\n${call}`, '']
  const shown = execFileSync('bash', [...bash, 'period', 'close', '2026-01', '--wh'], {encoding: 'utf8'})
  expect(shown).toBe('--why\n')
  expect(await print('zsh')).toContain(script)
  expect(await print('fish')).toContain('loantape completion fish -- (commandline -opc)')
  expect(await print('fish', '--', 'loantape', 'period')).toMatch(
    /close fix the journal .*\n(?:.*\n)*--json print /m,
  )
})

const explain = (...args: string[]) => runCommand(['explain', ...args], {})

test('explain finds an error by its code in any spelling, and suggests the nearest', async () => {
  const stdout = expect.stringMatching(
    /^SOURCE_PINNED: exit 2, .*\nKept: Nothing was changed\.\nNext: Use another folder .*\n$/,
  )
  expect(await explain('source_pinned')).toMatchObject({code: 0, stdout})
  const shrink = readJson(await explain(' [GUARD_SHRINK].', '--json'))
  expect(shrink).toMatchObject({code: 'GUARD_SHRINK', exit_code: 8})
  for (const [asked, words] of Object.entries({
    shrink: "Code 'shrink': expected a code such as GUARD_SHRINK.",
    shrnk: "Code 'shrnk': expected a code such as GUARD_SHRINK.",
    SOURCE_PINED: 'expected a code such as SOURCE_PINNED.',
    nonsense: 'expected a known code. Nothing was changed. `loantape explain` lists all codes.',
  }))
    await expectRefused(explain(asked, '--json'), 'UNKNOWN_NAME', words)
})

test('without a code, explain lists every code by exit code', async () => {
  const {stdout} = await explain()
  expect(stdout).toMatch(/^exit 8, a guard refused.*:\n {2}GUARD_CHANGE /m)
  const lines = stdout.match(/^ {2}.*/gm) ?? []
  const listed = lines.flatMap((line) => line.trim().split(/ +/))
  expect(listed.sort()).toEqual(Object.keys(CATALOGUE).sort())
  expect(Math.max(...lines.map(({length}) => length))).toBeLessThanOrEqual(80)
  expect(readJson(await explain('--json'))).toMatchObject({codes: {length: Object.keys(CATALOGUE).length}})
})
