// Command dummy stands for a program that is slow to compile.
package main

import "os"

func main() { println(len(os.Args)) }
