import {mkdirSync, rmSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {fileURLToPath} from 'node:url'
import {expect, test} from 'vitest'
import {FEW_TABLES, readFiles} from '../support/data.ts'
import {MAIN, someDeals, startProcess} from '../support/lab.ts'
import {useLab} from '../support/set-up.ts'
import {readJson} from './outcome.ts'

const KILL_AT = fileURLToPath(new URL('../support/kill-at.ts', import.meta.url))
const EXPORT = ['export', 'csv', 'parquet', '--table', 'core.deal', 'mart.portfolio_summary', '--json']

const lab = await useLab({tables: FEW_TABLES, deals: someDeals(20), releasedAt: '2026-02-02T23:30:00-05:00'})
const inbox = join(lab.folder.root, '../inbox')
const targets = join(lab.folder.root, '../targets.json')
writeFileSync(targets, JSON.stringify({share: {kind: 'folder', path: inbox}}))
const env = {...lab.env, LOANTAPE_TARGETS_FILE: targets}

function emptyInbox(): void {
  rmSync(inbox, {recursive: true, force: true})
  mkdirSync(inbox)
}

test('an export killed at any point leaves no torn file under a final name, and the next one completes it', async () => {
  const deliver = [...EXPORT, '--deliver', 'share']
  const whole = lab.copyFolder('undisturbed')
  emptyInbox()
  readJson(await lab.run(deliver, {...env, LOANTAPE_DATA_DIR: whole.root}))
  const expected = {exports: readFiles(whole.exports), inbox: readFiles(inbox)}
  const isFinal = ([path]: [string, string]) => !path.includes('.writing-') && !path.endsWith('.part')
  for (let nth = 1; ; nth += 21) {
    const folder = lab.copyFolder(`killed-${nth}`)
    emptyInbox()
    const own = {...env, LOANTAPE_DATA_DIR: folder.root}
    const command = [process.execPath, '--import', KILL_AT, MAIN, ...deliver]
    const {signal, code, stderr} = await startProcess(command, {...own, KILL_AT: String(nth)}).ended
    if (signal === null) {
      expect(code, stderr).toBe(0)
      expect(nth).toBeGreaterThan(20)
      break
    }
    mkdirSync(folder.exports, {recursive: true})
    const readBoth = () => ({exports: readFiles(folder.exports), inbox: readFiles(inbox)})
    const {exports, inbox: delivered} = readBoth()
    for (const [path, content] of [...Object.entries(exports), ...Object.entries(delivered)].filter(isFinal))
      expect([expected.exports[path], expected.inbox[path]], `${path}, ${nth}`).toContain(content)
    readJson(await lab.run(deliver, own))
    expect(readBoth(), `killed at ${nth}`).toEqual(expected)
  }
})
