import {execFileSync} from 'node:child_process'
import {join, parse} from 'node:path'
import {pathToFileURL} from 'node:url'
import {expect, test} from 'vitest'
import {writeBatch} from '../../src/export/table-files.ts'
import {createFolder} from '../support/data.ts'
import {publishTables} from '../support/releases.ts'

/** Converts a workbook with LibreOffice, beside it. @returns the printed text */
function printBook(book: string, dir: string): string {
  const profile = `-env:UserInstallation=${pathToFileURL(join(dir, 'office')).href}`
  const args = ['--headless', profile, '--convert-to', 'pdf', '--outdir', dir, book]
  execFileSync('soffice', args, {stdio: 'pipe'})
  const pdf = join(dir, `${parse(book).name}.pdf`)
  return execFileSync('pdftotext', ['-layout', pdf, '-'], {encoding: 'utf8'})
}

test('LibreOffice prints a summary and every table, and calculates nothing', async () => {
  using data = createFolder()
  const release = await publishTables(data.folder, {
    sql: `
      create schema release.core;
      create table release.core.deal as
      select * from (values
        ('deal_1', '=HYPERLINK("http://x")', 1234567.80::decimal(18,2), 0.614::double, date '2026-01-05', true),
        ('deal_2', '=1+1 _x0041_', -0.01, null, null, false)
      ) as t(deal_id, property_address, loan_amount, ltv, created_on, is_missing)`,
  })
  const {dir} = await writeBatch(data.folder, release, {profile: 'xlsx'})
  const text = printBook(join(dir, 'loantape-2026-02-02.xlsx'), data.folder.root)
  expect(text).toContain('Loan portfolio as of 2026-02-02')
  expect(text).toMatch(/Present deals\s+3\s+600\.30/)
  expect(text).toContain('=HYPERLINK("http://x")')
  expect(text).toContain('=1+1 _x0041_')
  expect(text).toMatch(/1,234,567\.80\s+61\.4%\s+2026-01-05\s+TRUE/)
  expect(text).toContain('-0.01')
})
