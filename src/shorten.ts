/** A text of the data no longer than a name is. */
export function shorten(text: string): string {
  return text.length > 80 ? `${text.slice(0, 79)}…` : text
}
