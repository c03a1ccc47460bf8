/** The arguments in a flag's value, where blanks separate them. */
export function splitArgs(text: string): readonly string[] {
  return text.split(' ').filter((arg) => arg !== '');
}
