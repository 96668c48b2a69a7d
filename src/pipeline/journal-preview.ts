import {mkdtempSync, rmSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {backup} from 'node:sqlite'
import {type IssuedBatch, listIssuedLines, readBatchContent} from '../accounting/issued.ts'
import type {IssuedLine} from '../accounting/journal-line.ts'
import type {Config} from '../config.ts'
import type {BatchResult} from '../export/batch.ts'
import {addAmounts} from '../money.ts'
import {openStateDb} from '../state/state-db.ts'
import type {World} from '../types.ts'
import {dataFolderAt} from '../warehouse/data-folder.ts'
import {type Act, applyAct} from './acts.ts'
import {issueMonth, type JournalRequest, measure} from './journal-export.ts'

/** A batch that an export would issue. */
export interface JournalPreview {
  /** Without a `dir`: its files are nowhere. */
  batch: BatchResult
  /** What it would book, by account; amounts are decimal text, USD. */
  accounts: {account_code: string; account_name: string; lines: number; debit: string; credit: string}[]
  /** Its files, each with its first lines. */
  files: {name: string; head: string}[]
}

const HEAD_LINES = 5

/**
 * Tells what {@link exportJournal} would issue, and issues nothing: batches go into a copy of the state database, which is removed.
 * A release that is needed for it and not there is built, and kept.
 */
export async function previewJournal(
  config: Config,
  request: JournalRequest,
  world: World,
): Promise<JournalPreview[]> {
  const folder = dataFolderAt(config.dataDir)
  const dir = mkdtempSync(join(tmpdir(), 'loantape-preview-'))
  try {
    const copy = join(dir, 'state.sqlite')
    {
      using issued = openStateDb(folder.stateDb)
      await backup(issued.db, copy)
    }
    using stateDb = openStateDb(copy)
    const {name} = request.profile
    const handOut = (batch: IssuedBatch): BatchResult => ({
      ...measure(stateDb, batch),
      dir: '',
      outcome: 'written',
    })
    const perform = (act: Act) => applyAct(stateDb, act)
    const issuing = {stateDb, perform, handOut, findHandedOut: () => ''}
    const batches = await issueMonth(config, request, issuing, world)
    const lines = listIssuedLines(stateDb, name)
    return batches.map((batch) => ({
      batch,
      accounts: addUpAccounts(lines.filter(({batch_id}) => batch_id === batch.batch_id)),
      files: readBatchContent(stateDb, {profile: name, batch_id: batch.batch_id})
        .filter((file) => file.name !== 'manifest.json')
        .map((file) => ({
          name: file.name,
          head: Buffer.from(file.content).toString().split('\n', HEAD_LINES).join('\n'),
        })),
    }))
  } finally {
    rmSync(dir, {recursive: true, force: true})
  }
}

function addUpAccounts(lines: readonly IssuedLine[]): JournalPreview['accounts'] {
  const accounts = Map.groupBy(lines, ({account_code}) => account_code)
  return [...accounts].sort().map(([account_code, own]) => ({
    account_code,
    account_name: own[0]?.account_name ?? '',
    lines: own.length,
    debit: addAmounts(own.map(({debit}) => debit)),
    credit: addAmounts(own.map(({credit}) => credit)),
  }))
}
