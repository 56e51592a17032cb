// Command nettool is what the suite's images have in place of curl and nc, which cannot be taken from this machine as static
// programs. It does what the suite asks of them and nothing more; by the name that it is called with it is one or the other:
//
//	curl [-k] [-s] [-f] [-X METHOD] [-m SECONDS] URL    prints what the URL answers
//	nc [-u] [-w SECONDS] HOST PORT                      sends its input, prints what comes back
package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Exit codes of curl that scripts look at.
const (
	wrongUse   = 2
	noAnswer   = 7
	badAnswer  = 22
	usualLimit = 10 * time.Second
)

type wish struct {
	method      string
	limit       time.Duration
	udp, strict bool
	words       []string
}

func main() {
	wish, err := read(os.Args[1:])
	if err != nil {
		fail(wrongUse, err)
	}
	if filepath.Base(os.Args[0]) == "nc" {
		err = talk(wish)
	} else {
		err = get(wish)
	}
	if err != nil {
		fail(noAnswer, err)
	}
}

func fail(code int, err error) {
	fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
	os.Exit(code)
}

func read(words []string) (wish, error) {
	wish := wish{method: http.MethodGet, limit: usualLimit}
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		if len(word) < 2 || word[0] != '-' {
			wish.words = append(wish.words, word)
			continue
		}
		switch word {
		case "-X", "--request", "-w", "-m", "--max-time", "--connect-timeout", "-H", "-o", "-q":
			if word == "-q" {
				continue
			}
			if len(words) == 0 {
				return wish, fmt.Errorf("%s wants a value", word)
			}
			value := words[0]
			words = words[1:]
			switch word {
			case "-X", "--request":
				wish.method = value
			case "-w", "-m", "--max-time", "--connect-timeout":
				// curl's -w is a format, which does not parse and changes nothing here.
				if seconds, err := strconv.ParseFloat(value, 64); err == nil {
					wish.limit = time.Duration(seconds * float64(time.Second))
				}
			}
		case "--fail":
			wish.strict = true
		default:
			if word[1] == '-' {
				continue
			}
			for _, letter := range word[1:] {
				wish.udp = wish.udp || letter == 'u'
				wish.strict = wish.strict || letter == 'f'
			}
		}
	}
	return wish, nil
}

func talk(wish wish) error {
	if len(wish.words) != 2 {
		return errors.New("usage: nc [-u] [-w SECONDS] HOST PORT")
	}
	network := "tcp"
	if wish.udp {
		network = "udp"
	}
	connection, err := net.DialTimeout(network, net.JoinHostPort(wish.words[0], wish.words[1]), wish.limit)
	if err != nil {
		return err
	}
	defer connection.Close()
	go func() { _, _ = io.Copy(connection, os.Stdin) }()
	if err := connection.SetReadDeadline(time.Now().Add(wish.limit)); err != nil {
		return err
	}
	_, err = io.Copy(os.Stdout, connection)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}

func get(wish wish) error {
	if len(wish.words) == 0 {
		return errors.New("usage: curl [-k] [-s] [-f] [-X METHOD] [-m SECONDS] URL")
	}
	// Certificates in tests are nobody's.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	client := http.Client{Timeout: wish.limit, Transport: transport}
	url := wish.words[len(wish.words)-1]
	request, err := http.NewRequest(wish.method, url, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if wish.strict && answer.StatusCode >= http.StatusBadRequest {
		fail(badAnswer, fmt.Errorf("%s answered %s", url, answer.Status))
	}
	_, err = io.Copy(os.Stdout, answer.Body)
	return err
}
