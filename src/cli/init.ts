import {existsSync, mkdirSync, readFileSync, realpathSync} from 'node:fs'
import {dirname, join, relative, resolve} from 'node:path'
import {createInterface} from 'node:readline'
import {Writable} from 'node:stream'
import {parseConfig} from '../core/config.ts'
import {codeOf, newError} from '../core/errors.ts'
import {nameOfUser} from '../core/process.ts'
import {isFile, listFilesBelow, writeNewFile} from '../store/files.ts'
import {does, type Invocation} from './command.ts'

export const commands = {
  init: does(
    async ({options}: Invocation<{baseUrl?: string}>, given: string | undefined) => {
      const folder = resolve(given ?? '.')
      const has = (name: string) => existsSync(join(folder, name))
      const isClone = listIgnored(folder).includes('.env') && has('jobs') && !has('.env')
      const files = listTemplates().filter(({name}) => !isClone || OF_MACHINE.includes(name))
      const taken = files.map(({name}) => findTaken(folder, name)).find((path) => path !== undefined)
      if (taken !== undefined)
        throw newError('OUT_PLACE', `Folder '${folder}' already has '${taken}'.`, {
          next: 'Name another folder, or remove what is there.',
        })
      const isAsked = process.stdin.isTTY && options.baseUrl === undefined
      const [baseUrl, apiKey] = isAsked ? await askBoth() : [options.baseUrl]
      // A line break would add a setting to .env, or a line to the systemd unit.
      for (const [name, text = ''] of Object.entries({folder, 'base URL': baseUrl, key: apiKey}))
        if (/\p{Cc}/u.test(text))
          throw newError('CONFIG_INVALID', `The ${name} has a control character: expected one line of text.`)
      parseConfig({LOANTAPE_BASE_URL: baseUrl, LOANTAPE_API_KEY: apiKey}, {readFile: () => ''})
      const [ofUrl, ofKey] = [quote(baseUrl ?? ''), quote(apiKey ?? '')]
      const values: Record<string, string> = {
        // Where the user has no name, systemd takes the number.
        user: nameOfUser().replace('uid ', ''),
        folder,
        node: process.execPath,
        program: realpathSync(process.argv[1] ?? '.'),
      }
      for (const {path, name} of files) {
        const text = readFileSync(path, 'utf8')
          .replace(/(?<=^LOANTAPE_BASE_URL=)$/m, () => ofUrl)
          .replace(/(?<=^LOANTAPE_API_KEY=)$/m, () => ofKey)
        const filled = name.endsWith('.service')
          ? text.replaceAll(/\{(\w+)\}/g, (whole, key: string) => values[key]?.replaceAll('%', '%%') ?? whole)
          : text
        writeNew(join(folder, name), filled)
      }
      return {folder, files: files.map(({name}) => name).sort()}
    },
    ({folder, files}) => [
      `Laid out ${folder}:`,
      {indented: files},
      'In that folder, next:',
      '  loantape doctor       whether everything is in place; base URL and key are set in .env',
      '  loantape test         the example of a table of your own, sql/risk/watch_list.sql',
      '  loantape run nightly  the first sync and its files, in data/',
    ],
  ),
}

/** Left out of git by `.gitignore`, so that a clone of a lender's folder lacks them. */
const OF_MACHINE = ['.env', 'loantape.service']

function listIgnored(folder: string): string[] {
  const file = join(folder, '.gitignore')
  return isFile(file) ? readFileSync(file, 'utf8').split(/\r?\n/) : []
}

const TEMPLATES = join(import.meta.dirname, '../../templates')

/** npm leaves some dotfiles out of packages, so these get their leading dot here. */
const HIDDEN = ['env', 'gitignore']

function listTemplates(): {path: string; name: string}[] {
  return listFilesBelow(TEMPLATES).map((path) => {
    const name = relative(TEMPLATES, path)
    return {path, name: HIDDEN.includes(name) ? `.${name}` : name}
  })
}

/** @throws ConfigError `OUT_PLACE` */
export function writeNew(path: string, text: string): void {
  try {
    mkdirSync(dirname(path), {recursive: true})
    writeNewFile(path, text, 0o600)
  } catch (cause) {
    const problem = `File '${path}' cannot be written (${codeOf(cause)}).`
    throw newError('OUT_PLACE', problem, {next: 'Name a folder that you may write into.', cause})
  }
}

/** Finds the name itself, or a file in place of a folder above it. */
function findTaken(folder: string, name: string): string | undefined {
  if (existsSync(join(folder, name))) return name
  for (let above = dirname(name); above !== '.'; above = dirname(above))
    if (isFile(join(folder, above))) return above
}

/** Quotes a value for `.env`. */
export function quote(value: string): string {
  if (/^[\w:/.?=&%~+-]*$/.test(value)) return value
  const mark = [`'`, '`', '"'].find((one) => !value.includes(one))
  if (mark === undefined)
    throw newError('CONFIG_INVALID', 'The value has all of \' ` ": write it into .env yourself.')
  return `${mark}${value}${mark}`
}

async function askBoth(): Promise<[string, string]> {
  let isShown = true
  const output = new Writable({
    write(chunk, _encoding, done) {
      if (isShown) process.stderr.write(chunk)
      done()
    },
  })
  using lines = createInterface({input: process.stdin, output, terminal: true})
  process.stderr.write('Base URL of the service, API prefix included: ')
  // In the same turn, since both may have been pasted together.
  lines.once('line', () => {
    isShown = false
    process.stderr.write('API key (not shown): ')
  })
  const given: string[] = []
  for await (const line of lines) if (given.push(line.trim()) === 2) break
  process.stderr.write('\n')
  const [baseUrl, apiKey] = given
  if (baseUrl !== undefined && apiKey !== undefined) return [baseUrl, apiKey]
  throw newError('INTERRUPTED', 'Nothing was answered.', {
    kept: 'Nothing was written.',
    next: 'Run it again.',
  })
}
