import type {Command} from 'commander'
import {expect, test} from 'vitest'
import {createCli} from '../../src/cli/context.ts'
import {createProgram} from '../../src/cli/program.ts'

/** The program with nothing behind its commands, so an example is only parsed. */
async function createShell(): Promise<Command> {
  const program = await createProgram(
    createCli({
      env: {},
      stdout: {write: () => undefined},
      stderr: {write: () => undefined},
      onStop: () => undefined,
    }),
  )
  for (const command of listLeaves(program)) command.action(() => undefined)
  return program
}

/** Every command that does something. */
function listLeaves(command: Command): Command[] {
  return command.commands.length === 0
    ? [command]
    : [...command.commands.flatMap(listLeaves), ...(command.name() === 'service' ? [command] : [])]
}

const nameOf = (command: Command): string =>
  command.parent ? `${nameOf(command.parent)} ${command.name()}` : command.name()

/** Everything `--help` prints, including text added after it. */
function readHelp(command: Command): string {
  const words: string[] = []
  command.configureOutput({writeOut: (text) => void words.push(text)})
  command.outputHelp()
  return words.join('')
}

const names = listLeaves(await createShell()).map(nameOf)

test.each(names)('`%s --help` lists --data, --json and an example that parses', async (name) => {
  const program = await createShell()
  const command = listLeaves(program).find((leaf) => nameOf(leaf) === name)
  const help = readHelp(command!)
  expect(help).toMatch(/--data <dir> /)
  expect(help).toMatch(/--json /)
  const [, example = ''] = /\nExample:\n {2}loantape (.+)\n/.exec(help) ?? []
  expect(`loantape ${example}`).toMatch(new RegExp(`^${name}( |$)`))
  const args = [...example.matchAll(/"([^"]*)"|(\S+)/g)].map(([, quoted, bare]) => quoted ?? bare ?? '')
  await expect(program.parseAsync(args, {from: 'user'})).resolves.toBeDefined()
})
