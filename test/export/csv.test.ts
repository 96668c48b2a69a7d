import {hash} from 'node:crypto'
import {readdirSync, readFileSync, rmSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import type {z} from 'zod'
import {dialectSchema} from '../../src/export/dialect.ts'
import {writeBatch} from '../../src/export/table-files.ts'
import type {Release} from '../../src/store/release.ts'
import {readManifest} from '../support/data.ts'
import {publishTables, publishTypes} from '../support/releases.ts'
import {expectFailure, useFolder} from '../support/set-up.ts'

const data = useFolder()

/** A release whose only table is made by this SQL. */
const publish = (select: string, release_id = 'one') =>
  publishTables(data.folder, {
    release_id,
    sql: `create schema release.core; create table release.core.deal as ${select}`,
  })

type Changes = z.input<typeof dialectSchema>
const write = (release: Release, changes: Changes = {}) =>
  writeBatch(data.folder, release, {profile: 'csv', dialect: dialectSchema.parse(changes)})

const bytesOf = (dir: string) => readFileSync(join(dir, 'core.deal.csv'))
const textOf = (dir: string) => bytesOf(dir).toString()

const texts = [
  ...['=HYPERLINK("http://x")', '+1', '-1', '@sum', '\tx', '\rx', '\nx', '＝1', '＋1', '－1', '＠x'],
  ...['  =1', '\u00a0=1', '\ufeff=1', '\u200b=1', '\u0001=1'],
]
const harmless = ['12 Main St', '', 'a=1', '<250k', "'=1"]

test('spreadsheet-safe puts a quote before texts that would be formulas, and the manifest lists each cell', async () => {
  const values = [...texts, ...harmless].map((text) => `('${text.replaceAll("'", "''")}')`)
  const release = await publish(`select 'd' as deal_id, x as paid from (values ${values.join()}) as t(x)`)
  const {dir} = await write(release, {spreadsheetSafe: true})
  const expected = [...texts.map((text) => `'${text}`), ...harmless]
  const quote = (text: string) =>
    text === '' || /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
  expect(textOf(dir)).toBe(`deal_id,paid\n${expected.map((text) => `d,${quote(text)}\n`).join('')}`)
  expect(readManifest(dir).neutralised).toEqual(
    texts.map((_, index) => ({file: 'core.deal.csv', row: index + 1, column: 'paid'})),
  )
  // More than a call takes arguments.
  const many = await publish(`select 'd' as deal_id, '+1' as phone from range(150000)`, 'many')
  const written = await write(many, {spreadsheetSafe: true})
  expect(readManifest(written.dir).neutralised).toHaveLength(150_000)
})

test('rows that share their place in the order of a table have the same one in the file whenever it is written', async () => {
  // Of a size that the engine sorts with several threads.
  const made = await publish('select i % 7 as k, hash(i) as a from range(1200000) as t(i)')
  const tables = made.manifest.tables.map((table) => ({...table, order: ['k']}))
  const release = {...made, manifest: {...made.manifest, tables}}
  const {dir} = await write(release)
  const bytes = bytesOf(dir)
  rmSync(dir, {recursive: true})
  await write(release)
  expect(bytesOf(dir).equals(bytes)).toBe(true)
})

test('spreadsheet-safe leaves numbers and dates unchanged, and refuses an id or a number it would have to change', async () => {
  const release = await publish(
    `select 'd_1' as deal_id, -1.50::decimal(18,2) as amount, -0.5::double as ratio, -7::bigint as days, date '2026-01-02' as day`,
  )
  const {dir} = await write(release, {spreadsheetSafe: true})
  expect(textOf(dir)).toBe('deal_id,amount,ratio,days,day\nd_1,-1.50,-0.5,-7,2026-01-02\n')
  expect(readManifest(dir).neutralised).toEqual([])
  const before = readdirSync(join(dir, '..'))
  for (const [column, value] of [
    ['deal_id', "'=1'"],
    ['id', "'=1'"],
    ['ltv', "'nan'::double"],
    ['ratio', "'-inf'::double"],
    ['day', "'-infinity'::date"],
  ]) {
    const refused = await publish(`select ${value} as ${column}`, column)
    const words = `Column '${column}' of table 'core.deal', row 1, holds`
    await expectFailure(write(refused, {spreadsheetSafe: true}), 'EXPORT_CELL', words)
    expect(readdirSync(join(dir, '..'))).toEqual(before)
  }
})

/** A row whose cells contain every special character of a dialect. */
const SIGNS = `select '00123' as deal_id, E'a;b,c|d\\te\\nf' as note, '=1' as formula, -1.50::decimal(18,2) as amount,
  1.5e-7::double as ratio, 7::bigint as days, null::varchar as nothing, '' as empty`

const dialects: [changes: Changes, text: string][] = [
  [{lineEnding: 'crlf'}, '00123,"a;b,c|d\te\nf",=1,-1.50,1.5e-07,7,,""\r\n'],
  [{delimiter: ';', decimal: ','}, '00123;"a;b,c|d\te\nf";=1;-1,50;1,5e-07;7;;""\n'],
  [{delimiter: 'tab'}, '00123\t"a;b,c|d\te\nf"\t=1\t-1.50\t1.5e-07\t7\t\t""\n'],
  [{delimiter: '|', quoteTexts: true}, '"00123"|"a;b,c|d\te\nf"|"=1"|-1.50|1.5e-07|7||""\n'],
]

test('a dialect says how cells are written and changes no text; it is part of what a batch is, and its manifest names it', async () => {
  const release = await publish(SIGNS)
  const ids = new Set([(await write(release)).batch_id])
  for (const [changes, text] of dialects) {
    const {dir, batch_id} = await write(release, changes)
    expect(textOf(dir).split('\n').slice(1).join('\n'), JSON.stringify(changes)).toBe(text)
    const manifest = readManifest(dir)
    expect(manifest.dialect).toEqual(dialectSchema.parse(changes))
    expect(manifest).not.toHaveProperty('neutralised')
    expect((await write(release, {...changes, bom: false})).batch_id).toBe(batch_id)
    ids.add(batch_id)
  }
  expect(ids.size).toBe(1 + dialects.length)
})

test.each([
  ['varchar', 'x', 'x', '"x"'],
  ['decimal(18,2)', '-1.50', '-1,50', '-1,50'],
])('a row that is one null is no empty line, which readers skip: %s', async (type, value, plain, quoted) => {
  const release = await publish(`select unnest([null, '${value}', null])::${type} as only`)
  for (const [changes, cell] of [
    [{}, plain],
    [{quoteTexts: true, lineEnding: 'crlf'}, quoted],
  ] as const) {
    const {dir} = await write(release, {delimiter: ';', decimal: ',', ...changes})
    expect(textOf(dir).split(/\r?\n/).slice(1)).toEqual(['""', cell, '""', ''])
  }
})

test('a byte order mark and windows-1252 are written a part at a time; what it lacks is refused, or replaced and listed', async () => {
  const all = Array.from({length: 256}, (_, byte) => byte).filter(
    (byte) => byte > 31 && !(byte > 126 && byte < 160),
  )
  const signs = '€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ'
  const known = `${Buffer.from(all.filter((byte) => byte !== 34 && byte !== 44)).toString('latin1')}${signs}`
  const release = await publish(`select '${known.replaceAll("'", "''")}' as t, i from range(20000) as t(i)`)
  const {dir: marked} = await write(release, {bom: true})
  expect(bytesOf(marked).subarray(0, 3)).toEqual(Buffer.from([0xef, 0xbb, 0xbf]))
  expect(textOf(marked).slice(1)).toBe(textOf((await write(release)).dir))
  const {dir} = await write(release, {encoding: 'windows-1252'})
  expect(new TextDecoder('windows-1252').decode(bytesOf(dir))).toBe(textOf(marked).slice(1))
  expect(readdirSync(dir).sort()).toEqual(['core.deal.csv', 'datapackage.json', 'manifest.json'])

  const foreign = await publish(
    `select 'x' as t, 'é' as u union all select 'Łódź' as t, chr(129) as u`,
    'foreign',
  )
  const windows = {encoding: 'windows-1252'} as const
  const words = /^(?!.*Ł)Column 't' of table 'core\.deal', row 2, .*windows-1252/
  await expectFailure(write(foreign, windows), 'EXPORT_CELL', words)
  const replacing = {...windows, replaceCharacters: true}
  const replaced = await write(foreign, {...replacing, spreadsheetSafe: true})
  expect(bytesOf(replaced.dir).toString('latin1')).toBe('t,u\nx,é\n?ód?,?\n')
  expect(readManifest(replaced.dir)).toMatchObject({neutralised: [], dialect: {replaceCharacters: true}})
  // Characters of an id are not replaced: two ids could become one.
  await expectFailure(write(await publish(`select 'Ł1' as deal_id`, 'named'), replacing), 'EXPORT_CELL')
})

test('datapackage.json says what each file holds, and the manifest lists it', async () => {
  const made = await publishTypes(data.folder)
  const tables = made.manifest.tables.map((table) => ({...table, contract: 3}))
  const release = {...made, manifest: {...made.manifest, tables}}
  const changes = {delimiter: ';', decimal: ',', lineEnding: 'crlf', encoding: 'windows-1252'} as const
  const {dir} = await write(release, changes)
  const text = readFileSync(join(dir, 'datapackage.json'))
  const bytes = readFileSync(join(dir, 'kinds.row.csv'))
  const fields = [
    {name: 'text', type: 'string'},
    {name: 'money', type: 'number', decimalChar: ',', description: "USD, 'exact'"},
    {name: 'widest', type: 'number', decimalChar: ','},
    {name: 'finest', type: 'number', decimalChar: ','},
    {name: 'count of it', type: 'integer'},
    {name: 'ratio', type: 'number', decimalChar: ','},
    {name: 'day', type: 'date'},
    {name: 'instant', type: 'datetime', format: '%Y-%m-%dT%H:%M:%S.%fZ'},
    {name: 'truth', type: 'boolean'},
    {name: 'null_word', type: 'string'},
  ]
  expect(bytes.toString().split('\r\n')[0]).toBe(fields.map(({name}) => name).join(';'))
  // The manifest must match the published JSON schemas of Data Package 2.0 and Table Schema.
  expect(JSON.parse(text.toString())).toEqual({
    $schema: 'https://datapackage.org/profiles/2.0/datapackage.json',
    name: 'loantape',
    id: 'types',
    resources: [
      {
        ...{name: 'kinds.row', type: 'table', path: 'kinds.row.csv', description: "What\\s's there."},
        ...{format: 'csv', mediatype: 'text/csv', encoding: 'windows-1252', contract: 3},
        ...{bytes: bytes.length, hash: `sha256:${hash('sha256', bytes)}`},
        dialect: {delimiter: ';', lineTerminator: '\r\n'},
        schema: {fields, missingValues: ['']},
      },
    ],
  })
  expect(readManifest(dir).files).toMatchObject([
    {name: 'kinds.row.csv'},
    {name: 'datapackage.json', bytes: text.length, sha256: hash('sha256', text)},
  ])
})
