// The editor of /sql. Without scripts, the form's own field remains.
import {autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap} from '@codemirror/autocomplete'
import {defaultKeymap, history, historyKeymap} from '@codemirror/commands'
import {PostgreSQL, sql} from '@codemirror/lang-sql'
import {bracketMatching, syntaxHighlighting} from '@codemirror/language'
import {Decoration, drawSelection, EditorView, keymap, lineNumbers} from '@codemirror/view'
import {classHighlighter} from '@lezer/highlight'

const field = document.querySelector('#q')
const [label] = field.labels
const tables = JSON.parse(field.dataset.tables)

// The language's own completion offers columns after a table or its alias. This one offers tables, and the columns of all tables
// that the statement names.
function completeNames(context) {
  const word = context.matchBefore(/[\w.]+/)
  if (!word || word.text.includes('.')) return null
  const text = context.state.doc.toString()
  const names = Object.keys(tables)
  const columns = new Set(names.filter((name) => text.includes(name)).flatMap((name) => tables[name]))
  return {
    from: word.from,
    options: [
      ...[...columns].map((label) => ({label, type: 'property', boost: 2})),
      ...names.map((label) => ({label, type: 'type', boost: 1})),
    ],
    validFor: /^\w*$/,
  }
}

const run = () => {
  field.form.requestSubmit()
  return true
}
// Marks the line of an error until the text is changed.
const failedLine = Number(field.dataset.failedLine)
const markFailed = ({state}) => {
  const isThere =
    state.doc.toString() === field.defaultValue && failedLine > 0 && failedLine <= state.doc.lines
  return isThere
    ? Decoration.set(Decoration.line({class: 'failed-line'}).range(state.doc.line(failedLine).from))
    : Decoration.none
}
const editor = new EditorView({
  doc: field.value,
  extensions: [
    // Tab is not bound, so that it leaves the editor.
    keymap.of([
      {key: 'Mod-Enter', run},
      ...completionKeymap,
      ...closeBracketsKeymap,
      ...historyKeymap,
      ...defaultKeymap,
    ]),
    lineNumbers(),
    history(),
    drawSelection(),
    bracketMatching(),
    closeBrackets(),
    // So few that the list need not be scrolled, which the keyboard alone could not do.
    autocompletion({icons: false, maxRenderedOptions: 10}),
    // DuckDB's grammar is derived from PostgreSQL's.
    sql({dialect: PostgreSQL, schema: tables}),
    PostgreSQL.language.data.of({autocomplete: completeNames}),
    syntaxHighlighting(classHighlighter),
    EditorView.lineWrapping,
    EditorView.darkTheme.of(matchMedia('(prefers-color-scheme: dark)').matches),
    EditorView.decorations.of(markFailed),
    EditorView.updateListener.of(({docChanged, state}) => {
      if (docChanged) field.value = state.doc.toString()
    }),
    EditorView.contentAttributes.of({'aria-label': label.textContent, 'aria-keyshortcuts': 'Control+Enter'}),
  ],
})
field.form.addEventListener('formdata', ({formData}) => formData.set('q', editor.state.doc.toString()))
field.hidden = true
field.before(editor.dom)
field.form.querySelector('button').title = 'Ctrl+Enter'
label.addEventListener('click', () => editor.focus())
