import {stripVTControlCharacters} from 'node:util'
import {expect, test} from 'vitest'
import {FEW_TABLES} from '../support/data.ts'
import {DAY_1, MAIN, type Started, someDeals, startProcess} from '../support/lab.ts'
import {useLab} from '../support/set-up.ts'
import {until} from '../support/until.ts'
import {expectRefused} from './outcome.ts'

const [CTRL_C, CTRL_D, TAB, UP] = ['\x03', '\x04', '\t', '\x1b[A']

const lab = await useLab({tables: FEW_TABLES, deals: someDeals(3), releasedAt: DAY_1})

/** The shell on a terminal of 120 columns, provided by `script`. */
function startShell(): Started {
  const shell = `stty cols 120 rows 40; '${process.execPath}' '${MAIN}' sql`
  const args =
    process.platform === 'linux' ? ['-qefc', shell, '/dev/null'] : ['-q', '/dev/null', 'sh', '-c', shell]
  return startProcess(['script', ...args], {...lab.env, TERM: 'xterm'})
}

/** Types, and waits until the new output contains a text. */
async function type({process, printed}: Started, text: string, shown: string): Promise<void> {
  const before = printed().stdout.length
  process.stdin?.write(text)
  await until(() => stripVTControlCharacters(printed().stdout.slice(before)).includes(shown))
}

test('statements span several lines and are completed, corrected, cleared and remembered', async () => {
  {
    using shell = startShell()
    await type(shell, '', 'as of 2026-02-02')
    await type(shell, 'select count(*) as deals\r', '->')
    await type(shell, `from core.deal_hi${TAB}`, 'core.deal_history')
    await type(shell, ';\r', '\r\ndeals\r\n─────\r\n    3')
    await type(shell, 'selec 1;\r', 'syntax error at or near "selec"')
    await type(shell, `select 'a;\r`, '->')
    await type(shell, `b' as two_lines; -- done\r`, 'a;\\nb')
    await type(shell, `select d.loan_am${TAB}`, 'd.loan_amount')
    await type(shell, CTRL_C, 'sql>')
    await type(shell, '.tables\r', 'mart.portfolio_summary')
    await type(shell, '.nothing\r', 'expected .tables, .help or .quit')
    shell.process.stdin?.write('select count(*) from range(1e12::bigint) as a, range(1e12::bigint) as b;\r')
    await until(() => {
      shell.process.stdin?.write(CTRL_C)
      return shell.printed().stdout.includes('Interrupted')
    })
    await type(shell, CTRL_D, '\n')
    expect((await shell.ended).code).toBe(0)
  }
  using shell = startShell()
  await type(shell, '', 'sql>')
  await type(shell, UP, 'select count(*) from range')
  await type(shell, CTRL_C, 'sql>')
  await type(shell, '.quit\r', '\n')
  expect((await shell.ended).code).toBe(0)
})

test('off a terminal it points to `query`', async () => {
  await expectRefused(lab.start(['sql', '--json']).ended, 'USAGE', '`loantape query -`')
})
